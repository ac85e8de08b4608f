"""The tracker: takes one frame and returns one Track."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.crop import WholeImage, make_crop_policy
from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box, View
from efftam_ros.core.identity import Others, Templates
from efftam_ros.core.memory import FrameMemory, MemoryBank
from efftam_ros.core.motion import TargetMotion
from efftam_ros.core.policies import make_policy
from efftam_ros.core.policies.base import Choice, FrameContext, Likeness
from efftam_ros.core.policies.drawn_box import DrawnExtent, TargetExtent, make_extent
from efftam_ros.core.search import BlindSearch, Reacquisition, Sighting
from efftam_ros.core.selection import look, whole
from efftam_ros.core.types import (
    MISSED,
    NO_POINTS,
    CameraMotion,
    Candidates,
    Frame,
    Motion,
    Prompt,
    ScoredBox,
    Track,
    TrackState,
)

if TYPE_CHECKING:
    from efftam_ros.core.contract import CameraMotionSource, Pipeline, PointSource
    from efftam_ros.core.types import Image

FIXED_SETTINGS = ("policy", "view", "window_factor", "camera_motion")

POINTS_VALID_NS = 250_000_000
"""Longest interval between two images over which points are followed; beyond it they are lost anyway."""


class Sources(NamedTuple):
    """What else observes the images for a tracker."""

    camera: CameraMotionSource | None
    points: PointSource | None
    is_blank: Callable[[Image, Box], bool] | None


class TargetState:
    """The target's state.

    A selection starts ACQUIRING; enough accepted frames in a row lead to TRACKING. A missed frame leads to
    COASTING, and to LOST once the last confirmed box is ``lost_after`` old. An accepted frame while COASTING
    or LOST starts ACQUIRING again, so that a reappearance is not reported before it is confirmed.
    """

    def __init__(self, config: TrackerConfig) -> None:
        self.config = config
        self.clear()

    def clear(self) -> None:
        self.state = TrackState.IDLE
        self.measured_ns: int | None = None
        self.confirmed_ns: int | None = None
        self.confirmed = False
        """Whether the state claims the target: TRACKING, or ACQUIRING since its selection without a miss."""
        self._streak = 0
        self._returning = False

    def select(self, stamp_ns: int) -> None:
        """The operator selected the target on this frame."""
        self.clear()
        self.state = TrackState.ACQUIRING
        self.hit(stamp_ns)

    def hit(self, stamp_ns: int) -> bool:
        """The target's box was accepted on this frame. Returns `confirmed`."""
        if self.state in MISSED:
            self.state, self._returning, self._streak = TrackState.ACQUIRING, True, 0
        self._streak += 1
        needed = self.config.reacquire_frames if self._returning else self.config.acquire_frames
        if self._streak >= needed:
            self.state, self._returning = TrackState.TRACKING, False
        self.measured_ns = stamp_ns
        self.confirmed = not self._returning
        if self.confirmed:
            self.confirmed_ns = stamp_ns
        return self.confirmed

    def miss(self, stamp_ns: int) -> None:
        """No box was accepted on this frame."""
        self._streak, self.confirmed = 0, False
        if self.state is not TrackState.LOST:
            recent = (
                self.confirmed_ns is not None
                and (stamp_ns - self.confirmed_ns) * 1e-9 <= self.config.lost_after
            )
            self.state = TrackState.COASTING if recent else TrackState.LOST

    def lose(self, times_valid: bool = True) -> None:
        """The previous position no longer holds. ``times_valid`` False: the stamps jumped, so earlier times
        are invalid."""
        self.state, self._streak, self.confirmed = TrackState.LOST, 0, False
        if not times_valid:
            self.measured_ns = self.confirmed_ns = None

    def age_s(self, stamp_ns: int) -> float:
        """Time since the last accepted box, s; NaN if there is none."""
        return float("nan") if self.measured_ns is None else (stamp_ns - self.measured_ns) * 1e-9


class Tracker:
    """Tracks one target. Not thread-safe, except for `prefetch`. For the states see `TargetState`.

    `step` computes the answer; the frame's contribution to the memory is computed by `commit` after the
    answer was published, or at the start of the next step. With an asynchronous pipeline it is enqueued at
    once.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        config: TrackerConfig | None = None,
        camera: CameraMotionSource | None = None,
        points: PointSource | None = None,
        is_blank: Callable[[Image, Box], bool] | None = None,
    ) -> None:
        """Create a tracker in state IDLE.

        Args:
            pipeline: Runs the network.
            config: Settings; default: `TrackerConfig()`.
            camera: Source of the camera's motion for policies that search; None: the camera is assumed not to
                move.
            points: Follows points on the target for policies that search; None: not used.
            is_blank: Whether a box of an image, px, and what surrounds it show nothing; None: not used.
        """
        config = config or TrackerConfig()
        self._pipeline = pipeline
        self.others = Others()
        """What a `TargetSet` says about the next image."""
        self._policy = make_policy(pipeline.spec, config)
        searches = self._policy.searches
        self._sources = Sources(camera if searches else None, points if searches else None, is_blank)
        self._target = TargetState(config)
        self.clear()

    @property
    def state(self) -> TrackState:
        return self._target.state

    @property
    def config(self) -> TrackerConfig:
        return self._target.config

    def reconfigure(self, config: TrackerConfig) -> None:
        """Change thresholds from the next frame on. Raises InputError when a fixed setting differs."""
        for f in fields(config):
            old, new = getattr(self.config, f.name), getattr(config, f.name)
            if f.name in FIXED_SETTINGS and old != new:
                raise InputError(
                    f"{f.name} cannot change from {old!r} to {new!r} while tracking; make a new tracker"
                )
        self._target.config = self._policy.config = config

    def clear(self) -> None:
        """Clear the target: IDLE."""
        self._target.clear()
        self._policy.reset()
        self.memory = FrameMemory(MemoryBank(self._policy.rule, self._pipeline.spec.slots))
        """Plans what the next frame attends to."""
        self._motion = TargetMotion()
        self._search = Reacquisition()
        self.templates = Templates()
        """Of the target's appearance."""
        self._window = self._make_window()
        self._extent: TargetExtent = DrawnExtent(None)
        self._last: tuple[int, tuple[int, int]] = (0, (0, 0))  # stamp and size of the last image
        self._shown: int | None = None  # candidate whose mask belongs to the last Track
        self._pending: list[Callable[[], object]] = []  # what `commit` calls
        self._looked: tuple[Frame, Generator[bool, None, Track]] | None = None  # at an image, by `look`
        self._forget_points()

    def _make_window(self) -> WholeImage:
        spec, config = self._pipeline.spec, self.config
        kind = spec.default_view if config.view == "bundle" else config.view
        if config.view == "bundle" and kind == "auto" and not self._policy.searches:
            kind = "full"  # as the references do
        return make_crop_policy(kind, spec.image_side, config.window_factor or spec.window_factor)

    def step(self, frame: Frame, prompt: Prompt | None = None, refine: bool = False) -> Track:
        """Process one image.

        Args:
            frame: The image and its stamp.
            prompt: Selects a target on this image, which becomes the prompted frame; None to track.
            refine: With a prompt, keep the memory: a further prompt on the same target. The policy default
                then attends to the newest prompt, and to the first where the pipeline takes more than one
                (`PipelineSpec.max_prompts`); the others attend to all of them.

        Returns:
            The Track. Without a prompt a bad frame does not raise: the Track states why it was not used.

        Raises:
            InputError: The prompt can't be used; the previous target is unchanged.
        """
        looked = self._looked
        if looked is not None and looked[0] is frame:
            self._looked = None
            return _ended(looked[1])
        self.end_look()
        if self._pending:
            self.commit()
        if prompt is not None:
            return self._step_prompted(frame, prompt, refine)
        if self._target.state is TrackState.IDLE:
            return Track(frame.stamp_ns, self.state, image_size=_size(frame))
        if frame.stamp_ns == self._last[0]:
            return self._unprocessed(frame, f"stamp {frame.stamp_ns} ns was already processed")
        return _ended(self._step_tracked(frame))

    def look(self, frame: Frame) -> bool:
        """Compute what `step` for this image begins with and what the answers of other targets do not change,
        in any thread. The next call is `step` or `end_look`.

        With an asynchronous pipeline it is enqueued, if the target is looked for in the whole image: returns
        whether it was.
        """
        if self.state is TrackState.IDLE or self._looked is not None or frame.stamp_ns == self._last[0]:
            return False
        self.commit()
        steps = self._step_tracked(frame, stops=True)
        self._looked = frame, steps
        return next(steps)

    def end_look(self) -> None:
        """Compute the rest of a step that `look` began and whose answer is not wanted."""
        looked, self._looked = self._looked, None
        if looked is not None:
            _ended(looked[1])

    def propose(self, frame: Frame, prompt: Prompt) -> Box | None:
        """The box that the network gives for a prompt, px; None where it finds nothing.

        Nothing is selected or remembered, and the target is as before; the mask of the last Track can no
        longer be read. Raises InputError when the prompt can't be used.
        """
        self.commit()
        self._shown = None
        size = _size(frame)
        views = self._make_window().starts(size, *prompt.region(*size))
        candidates = look(self._pipeline, frame.image, prompt, views).candidates
        box = candidates.box(whole(candidates)).clipped(*size)
        return None if box.is_empty else box

    def prefetch(self, image: Image) -> None:
        """Announce that `step` will probably get this image object next; from any thread."""
        if self.state is TrackState.IDLE:
            return
        if self._sources.camera is not None and self._pipeline.is_asynchronous:  # else the CPU has no time
            self._sources.camera.prefetch(image)
        self._pipeline.prefetch(image)

    def commit(self) -> None:
        """Compute what only later frames need of the last step's image: the memory update, the points to
        follow, the place to recognise; does nothing if there is nothing."""
        pending, self._pending = self._pending, []
        for compute in pending:
            compute()

    def _forget_points(self) -> None:
        if self._sources.points is not None:
            self._sources.points.reset()

    def _step_prompted(self, frame: Frame, prompt: Prompt, refine: bool) -> Track:
        stamp, size = frame.stamp_ns, _size(frame)
        box, marked = prompt.region(*size)
        if refine:
            self.memory.require_room_for_prompt()
        window = self._make_window()
        self._shown = None
        views, judges = window.starts(size, box, marked), self._policy.searches
        view, candidates, doubt = look(self._pipeline, frame.image, prompt, views, asks_twice=judges)
        visible = [visible_box for _, visible_box in candidates.visible]
        if box is None and not visible:
            point = marked.cx, marked.cy
            raise InputError(f"the network finds nothing at the selected point {point}; draw a box instead")
        self.others.require_free(box, candidates)
        if not refine:
            self.clear()
        if judges and box is not None and self._sources.is_blank and self._sources.is_blank(frame.image, box):
            doubt = "weak selection: the box shows the same single shade as its surroundings"
        context = FrameContext(
            stamp,
            view,
            TrackState.ACQUIRING,
            size,
            self._search,
            drawn=box,
            is_prompted=True,
            later=self._pending,
        )
        choice = self._policy.begin(candidates, context)
        start = choice.box or box or visible[0]
        window.settle(start)
        self._window, self._search.blind = window, None
        self._motion.start(stamp, start)
        if self._policy.searches:
            self._extent = make_extent(box, choice.box, size)
        if self._sources.camera is not None:
            self._sources.camera.reset()
            self._sources.camera.estimate(frame.image, stamp, self.others.boxes)
        self._target.select(stamp)
        self._last = stamp, size
        count = self._pipeline.spec.templates if self._policy.searches else 0
        self.templates = Templates(count, stamp)
        if count:
            self._pending.append(partial(self._pipeline.take_template, 0, start if doubt else box or start))
        self._remember(candidates, choice, context, confirmed=True)
        self._forget_points()
        if choice.box is not None:
            self._confirm(frame, choice.box, (0.0, 0.0))
        return self._track(frame, view, candidates, choice, choice.reason or doubt)

    def _step_tracked(self, frame: Frame, stops: bool = False) -> Generator[bool, None, Track]:
        """The Track of an image; ``stops`` where the answers of other targets begin to count, and before it
        waits for a network that runs by itself. Yields whether it got as far as that."""
        (stamp, size), (previous, previous_size) = (frame.stamp_ns, _size(frame)), self._last
        dt_s, config = (stamp - previous) * 1e-9, self._target.config
        interruption = ""  # why the motion estimate no longer holds
        if dt_s < 0:
            interruption = f"the image's stamp went back by {-dt_s:.3f} s"
        elif dt_s > config.max_gap:
            interruption = f"no image for {dt_s:.2f} s (max_gap is {config.max_gap:g} s)"
        elif size != previous_size:
            interruption = f"the image's size changed from {previous_size} to {size}"
        camera = (
            None if self._sources.camera is None else self._follow_camera(self._sources.camera, frame, dt_s)
        )
        state, launches = self._target.state, self._pipeline.is_asynchronous
        likeness = partial(self.templates.likeness, stamp_ns=stamp)
        known = None if interruption else self._motion.filter
        motion = None if known is None else known.predicted(stamp)
        expected = None if motion is None else motion.at(stamp, camera=False)
        self._shown = None
        windows: tuple[View, ...] = ()
        try:
            if interruption or state in MISSED:
                if stops:
                    yield False
                can_search = self._policy.searches and dt_s >= 0 and size == previous_size
                place = Box(0.0, 0.0, *size) if expected is None else expected.box  # where it may be
                is_lost = bool(interruption) or state is TrackState.LOST
                view, windows = self._missed_view(frame, place, is_lost, can_search, likeness)
            else:
                assert expected is not None
                view = self._window.view(size, expected.box, 0.0)
                if stops and launches and not view.is_full(*size):
                    yield False  # another view would end the frames of targets before it
            plan = self.memory.plan()
            self._pipeline.encode(frame.image, view)
        except InputError as refusal:
            if stops:
                yield False
            return self._unprocessed(frame, str(refusal))
        if interruption:
            self._interrupt(stamp, size)
            state = TrackState.LOST
        else:
            self._motion.filter = motion
        self._last = stamp, size
        self._pipeline.attend(plan)
        was_seen = state not in MISSED
        # Between launch and wait: a GPU works meanwhile.
        points = NO_POINTS
        if self._sources.points is not None and expected is not None and was_seen:
            if stamp - previous > POINTS_VALID_NS:
                self._sources.points.reset()
            points = self._sources.points.follow(frame.image, expected.box)
        if stops and launches:
            yield True
        candidates = self._pipeline.decode(None)
        if stops and not launches:
            yield True
        predicted = None if expected is None or state is TrackState.LOST else expected.box
        holder = None
        if self.others.rivals:
            candidates, holder = self.others.withheld(candidates, self.templates, predicted, stamp)
        if not candidates.is_finite:
            self.memory.skip()
            self._target.miss(stamp)
            self._motion.coast(stamp, was_seen)
            self._forget_points()
            reason = "the network's output is not finite; check the bundle"
            return self._track(frame, view, None, None, reason)
        context = FrameContext(
            stamp,
            view,
            state,
            size,
            self._search,
            likeness,
            self._motion.filter,
            expected,
            points=points,
            is_confirmed=self._target.confirmed,
            confirmed_ns=self._target.confirmed_ns,
            later=self._pending,
        )
        choice = self._policy.choose(candidates, context)
        confirmed = choice.box is not None and self._target.hit(stamp)
        if choice.box is None:
            self._target.miss(stamp)
        self._remember(candidates, choice, context, confirmed)
        if choice.box is None:
            self._motion.coast(stamp, was_seen)
        else:
            if confirmed:
                self._window.update(choice.box, max(0.0, dt_s))
            restart = choice.jumped or state is TrackState.LOST
            quality = float(candidates.ious[choice.index])
            self._motion.measure(stamp, choice.box, quality, restart, choice.partial)
        if choice.box is not None and confirmed:
            self._confirm(frame, choice.box, (0.0, 0.0) if expected is None else expected.velocity)
        else:
            self._forget_points()
        reason = interruption or choice.reason
        if choice.box is None and holder is not None:
            reason = f"what is seen here is target {holder}; {reason}"
        track = self._track(frame, view, candidates, choice, reason)
        tracks = self._search.tracks
        hypotheses = tuple(ScoredBox(one.box, one.score) for one in tracks) if tracks else ()
        return replace(track, windows=windows, hypotheses=hypotheses, camera=camera)

    def _follow_camera(self, source: CameraMotionSource, frame: Frame, dt_s: float) -> CameraMotion:
        """Move what is known in pixels by the camera's motion in the ``dt_s`` since the previous image."""
        motion, state = self._motion, self._target.state
        moving = [*self.others.boxes]
        if motion.filter is not None and state is not TrackState.LOST:
            moving.append(motion.filter.box)
        camera = source.estimate(frame.image, frame.stamp_ns, moving)
        matrix, is_missed = camera.matrix, state in MISSED
        if is_missed and matrix is not None and motion.is_behind(matrix):
            motion.lose()
            self._target.lose()
        motion.follow_camera(matrix, dt_s)
        self._search.is_camera_known = matrix is not None
        if self._search.is_running:
            self._search.follow_camera(matrix)
        seen = self._search.last_seen
        if is_missed and self._search.compares(frame.stamp_ns):
            kept = source.since(seen and seen.image)
            if kept.matrix is not None:
                self._search.recognise_place(kept.matrix, frame.stamp_ns)
        return camera

    def _missed_view(
        self, frame: Frame, place: Box, is_lost: bool, can_search: bool, likeness: Likeness
    ) -> tuple[View, tuple[View, ...]]:
        """The view of a frame whose predecessor missed the target, and the windows that were searched to
        choose it.

        ``place``: the target's predicted box, or that of the image; ``can_search``: what is known in pixels
        holds for this image. Raises InputError for a bad image.
        """
        stamp, size, side = frame.stamp_ns, _size(frame), self._pipeline.spec.image_side
        extent = self._window.extent(size)
        if extent is not None and can_search:
            search = self._search
            search.begin(size, self._motion.filter)
            budget = self.others.search_windows or self._target.config.search_windows
            windows = search.windows(stamp, size, extent, side, budget)
            found = self._pipeline.search(frame.image, windows, self.memory.plan())
            own = [self.others.withheld(one, self.templates, None, stamp)[0] for one in found]
            seen = [self._policy.detections(candidates, likeness) for candidates in own]
            search.observe(stamp, list(zip(windows, seen, strict=True)))
            return search.view(extent, side), tuple(windows)
        if extent is not None and is_lost:
            self._search.blind = self._search.blind or BlindSearch()
            return self._search.blind.view(size, place, extent, side), ()
        return self._window.view(size, place, self._target.age_s(self._last[0])), ()

    def _interrupt(self, stamp_ns: int, size: tuple[int, int]) -> None:
        """The motion estimate does not hold for this image. Of an image of another size, which shows the same
        scene, what is known in pixels is carried over."""
        previous, previous_size = self._last
        went_back = stamp_ns < previous
        self._target.lose(times_valid=not went_back)
        if went_back:
            self._search.stop()
        if went_back or size == previous_size:
            self._motion.lose()
        if size != previous_size:
            across, down = (now / before for now, before in zip(size, previous_size, strict=True))
            matrix = np.diag([across, down, 1.0])
            self._window.resize(math.sqrt(across * down))
            self._policy.resize(float(np.linalg.det(matrix[:2, :2])))
            self._search.resize(matrix)
            self._motion.resize(matrix, stamp_ns)

    def _remember(
        self, candidates: Candidates, choice: Choice, context: FrameContext, confirmed: bool
    ) -> None:
        """Have the frame stored in a slot of the ring if the policy keeps it."""
        self._pending.append(self.memory.plan)
        is_measured = confirmed and choice.box is not None and not context.is_prompted
        if is_measured and not self._extent.is_settled:
            self._extent.add(candidates, choice.index)
        is_shared = self.others.rivals and self.others.is_shared(choice.box) and not context.is_prompted
        if is_shared or not self._policy.keeps(candidates, choice, context, confirmed):
            self.memory.skip()
            return
        slot = self.memory.store(
            context.stamp_ns,
            float(candidates.ious[choice.index]),
            candidates.presence_logit,
            choice.motion_iou,
            context.is_prompted,
        )
        remember = partial(self._pipeline.remember, choice.index, slot, choice.present)
        if self._pipeline.is_asynchronous:
            remember()
        else:
            self._pending.append(remember)

    def _confirm(self, frame: Frame, box: Box, velocity: tuple[float, float]) -> None:
        """The state claims the target, which is seen in this box. ``velocity``: over the ground, px/s."""
        image = None if self._sources.camera is None else self._sources.camera.keep([box, *self.others.boxes])
        self._search.last_seen, self._search.blind = Sighting(frame.stamp_ns, box, velocity, image), None
        if self._search.is_running:
            self._search.stop()
        if self._sources.points is not None:
            self._pending.append(partial(self._sources.points.keep, frame.image, box))
        if self.others.rivals and self.others.is_shared(box):
            return
        template = self.templates.renew(frame.stamp_ns)
        if template is not None:
            self._pending.append(partial(self._pipeline.take_template, template, box))

    def _track(
        self, frame: Frame, view: View, candidates: Candidates | None, choice: Choice | None, reason: str
    ) -> Track:
        motion, state = None, self._target.state
        if self._motion.filter is not None and state is not TrackState.LOST:
            motion = self._motion.filter.at(frame.stamp_ns)
        box, presence, quality, likeness, confidence = None, 0.0, 0.0, math.nan, math.nan
        if candidates is not None and choice is not None:
            presence, quality = candidates.presence, float(candidates.ious[choice.index])
            likeness = self.templates.likeness(candidates, choice.index, frame.stamp_ns)
            if choice.box is not None and motion is not None:
                self._shown, box = self._extent.shown(candidates, choice.index, choice.box, motion.box)
        measured, calibration = box is not None, self._pipeline.spec.calibration
        if measured and calibration is not None:
            confidence = calibration.confidence(likeness, presence, quality)
        if motion is not None:
            motion = self._extent.grown_motion(motion)
            box = box or motion.box
        return Track(
            stamp_ns=frame.stamp_ns,
            state=state,
            box=box,
            measured=measured,
            presence=presence,
            quality=quality,
            likeness=likeness,
            confidence=confidence,
            age_s=0.0 if measured else self._target.age_s(frame.stamp_ns),
            motion=motion,
            view=view,
            image_size=self._last[1],
            reason=reason,
            stage_seconds=dict(self._pipeline.stage_seconds),
        )

    def _unprocessed(self, frame: Frame, reason: str) -> Track:
        return Track(
            frame.stamp_ns, self._target.state, image_size=_size(frame), reason=reason, processed=False
        )

    def mask(self) -> NDArray[np.uint8] | None:
        """The target's mask of the last frame, uint8 [H, W], 0 or 255; None if its box was not measured."""
        return None if self._shown is None else self._pipeline.mask(self._shown)

    def predict(self, stamp_ns: int) -> Motion | None:
        """The predicted motion at a later stamp, None if there is none. Does not change the tracker."""
        motion = self._motion.filter
        if motion is None or self.state is TrackState.LOST or stamp_ns < motion.stamp_ns:
            return None
        return self._extent.grown_motion(motion.at(stamp_ns))


def _ended(steps: Generator[bool, None, Track]) -> Track:
    """Run to the end."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        track: Track = end.value
        return track


def _size(frame: Frame) -> tuple[int, int]:
    return frame.image.width, frame.image.height
