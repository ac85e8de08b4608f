"""The tracker of one target: takes an image and returns a Track."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.crop import WholeImage, make_crop_policy
from efftam_ros.core.errors import InputError
from efftam_ros.core.gallery import ALONE, SHARED_IOU, Describe, Gallery, Looks, Others
from efftam_ros.core.geometry import Box, View, iou
from efftam_ros.core.memory import MemoryBank
from efftam_ros.core.motion import CameraAtImage, SharedCamera, TargetMotion
from efftam_ros.core.policies import make_policy
from efftam_ros.core.policies.base import Choice, FrameContext
from efftam_ros.core.policies.drawn_box import TargetExtent, make_extent
from efftam_ros.core.policies.search import Reacquisition, Sighting
from efftam_ros.core.selection import answer_prompt, whole
from efftam_ros.core.types import (
    MISSED,
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

FIXED_SETTINGS = ("policy", "view", "window_factor", "camera_motion", "identity")

POINTS_VALID_NS = 250_000_000
"""Longest interval between two images over which points are followed; beyond it they are lost anyway."""


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


class TargetTracker:
    """Tracks one target. Not thread-safe, except for `prefetch`. For the states see `TargetState`.

    A step has two halves, so that several targets share what belongs to an image: `begin` predicts the target
    and starts the network, `finish` decides which candidate is the target. What only later frames need is
    computed by `commit` after the answer was published, or at the start of the next step; an asynchronous
    pipeline gets it at once.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        config: TrackerConfig | None = None,
        camera: CameraMotionSource | None = None,
        points: PointSource | None = None,
        is_blank: Callable[[Image, Box], bool] | None = None,
        describe: Describe | None = None,
    ) -> None:
        """Create a tracker in state IDLE.

        Args:
            pipeline: Runs the network.
            config: Settings; default: `TrackerConfig()`.
            camera: Source of the camera's motion for `step`, for policies that search; None: the camera is
                assumed not to move.
            points: Follows points on the target for policies that search; None: not used.
            is_blank: Whether a box of an image, px, and what surrounds it show nothing; None: not used.
            describe: Tells individuals apart, for policies that search; None: not asked.
        """
        config = config or TrackerConfig()
        self._pipeline = pipeline
        self._policy = make_policy(pipeline.spec, config)
        self.searches = self._policy.searches
        """Whether the policy searches, for which it needs the camera's motion."""
        self._camera = SharedCamera(camera) if camera is not None and self.searches else None
        self._points, self._is_blank = points if self.searches else None, is_blank
        self._describe = describe if self.searches else None
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
        self.others = ALONE
        """What a `TargetSet` knows of the other targets in the last image."""
        self.memory = MemoryBank(self._policy.rule, self._pipeline.spec.slots)
        """Plans what the next frame attends to."""
        self._motion = TargetMotion()
        self._search = Reacquisition()
        self.gallery = Gallery()
        """Of the target's looks."""
        self._sure_frame = 0  # `memory.count` at the last look at what is like the target
        self._window = self._make_window()
        self._extent = TargetExtent()
        self.moving: list[Box] = []
        """What moves by itself in the last image, px: the target, unless it is lost."""
        self._last: tuple[int, tuple[int, int]] = (0, (0, 0))  # stamp and size of the last image
        self._shown: int | None = None  # candidate whose mask belongs to the last Track
        self._pending: list[Callable[[], object]] = []  # what `commit` calls
        self._begun: FrameContext | None = None
        self._forget_points()

    def _make_window(self) -> WholeImage:
        spec, config = self._pipeline.spec, self.config
        kind = spec.default_view if config.view == "bundle" else config.view
        if config.view == "bundle" and kind == "auto" and not self._policy.searches:
            kind = "full"  # as the references do
        return make_crop_policy(kind, spec.image_side, config.window_factor or spec.window_factor)

    def step(self, frame: Frame, prompt: Prompt | None = None, refine: bool = False) -> Track:
        """Process one image of a single target: `select` it with a prompt, else `begin` and `finish`.

        Returns the Track. Without a prompt a bad frame does not raise: the Track states why it was not used.
        Raises InputError when the prompt can't be used; the previous target is unchanged.
        """
        self.commit()  # it refers to the last image
        shared = self._camera
        if prompt is not None:
            camera = None if shared is None else shared.before_selection(0, frame, ())
            track = self.select(frame, prompt, refine, camera=camera)
            if shared is not None and camera is not None:
                shared.select(0, frame, camera)
            return track
        if self.state is TrackState.IDLE:
            return Track(frame.stamp_ns, self.state, image_size=_size(frame))
        self.begin(frame, None if shared is None else shared.at(0, frame, self.moving))
        return self.finish()

    def begin(self, frame: Frame, camera: CameraAtImage | None = None, is_batched: bool = False) -> bool:
        """The first half of a step, which does not depend on the answers for other targets: predict the
        target and have the network look where it is expected. May run in any thread.

        Args:
            frame: The image and its stamp; the target is not IDLE.
            camera: The camera at this image; None: it is assumed not to move.
            is_batched: The pipeline is asynchronous, and other targets have begun and not finished: nothing
                is launched that would end their frames.

        Returns:
            Whether the network looks already. Where it does not, `finish` has it look.
        """
        self.commit()
        work = self._begun = self._predict(frame, camera)
        if work.refusal or work.is_missed:
            return False  # what is searched depends on the other targets
        assert work.expected is not None
        work.view = self._window.view(work.size, work.expected.box, 0.0)
        if is_batched and not work.view.is_full(*work.size):
            return False  # all targets share the features of the whole image alone
        self._attend(work)
        if work.is_attended and not self._pipeline.is_asynchronous:
            work.candidates = self._pipeline.decode(None)
        return work.is_attended

    def finish(self, others: Others = ALONE) -> Track:
        """The second half of the step that `begin` started: decide which candidate is the target, update
        state, motion and window, and have the frame remembered. ``others``: the other targets in this image.
        A bad frame does not raise: the Track states why it was not used."""
        work, self._begun, self.others = self._begun, None, others
        assert work is not None, "begin comes before finish"
        if not work.is_attended and not work.refusal:
            self._search_view(work)
            self._attend(work)
        if work.refusal:
            return self._unprocessed(work.frame, work.refusal)
        candidates, holder = self._own(work)
        self._pending.append(self.memory.make_plan)
        if not candidates.is_finite:
            return self._miss_unread(work)
        choice = self._policy.choose(candidates, work)
        if choice.box is None:
            self.gallery.miss()
        elif self.gallery.is_other:
            choice = self._give_up(choice)
        confirmed = self._decide(choice, work.frame.stamp_ns)
        is_kept = self._remember(candidates, choice, work, confirmed)
        self._update(work, candidates, choice, confirmed, is_kept)
        reason = work.interruption or choice.reason
        if choice.box is None and holder is not None:
            reason = f"what is seen here is target {holder}; {reason}"
        track = self._track(work.frame, work.view, candidates, choice, reason)
        tracks = self._search.tracks
        hypotheses = tuple(ScoredBox(one.box, one.score) for one in tracks) if tracks else ()
        motion = None if work.camera is None else work.camera.motion
        return replace(track, windows=work.windows, hypotheses=hypotheses, camera=motion)

    def propose(self, frame: Frame, prompt: Prompt) -> Box | None:
        """The box that the network gives for a prompt, px; None where it finds nothing.

        Nothing is selected or remembered, and the target is as before; the mask of the last Track can no
        longer be read. Raises InputError when the prompt can't be used.
        """
        self.commit()
        self._shown = None
        size = _size(frame)
        views = self._make_window().starts(size, *prompt.region(*size))
        candidates = answer_prompt(self._pipeline, frame.image, prompt, views).candidates
        box = candidates.box(whole(candidates)).clipped(*size)
        return None if box.is_empty else box

    def prefetch(self, image: Image) -> None:
        """Announce that this image object will probably be processed next; from any thread."""
        if self._camera is not None and self._pipeline.is_asynchronous:  # else the CPU has no time
            self._camera.source.prefetch(image)
        self._pipeline.prefetch(image)

    def commit(self) -> None:
        """Compute what only later frames need of the last step's image: the memory update, the points to
        follow, the place to recognise, the target's usual scores; does nothing if there is nothing."""
        pending, self._pending = self._pending, []
        for compute in pending:
            compute()

    def select(
        self,
        frame: Frame,
        prompt: Prompt,
        refine: bool = False,
        others: Others = ALONE,
        camera: CameraAtImage | None = None,
    ) -> Track:
        """Select a target on this image, which becomes the prompted frame.

        Args:
            frame: The image and its stamp.
            prompt: Marks the target.
            refine: A further prompt on the same target: keep the memory. See `RankedFrames` and
                `RecentFrames` for the prompts that later frames attend to.
            others: The other targets in this image.
            camera: The camera at this image; None: it is assumed not to move.

        Raises:
            InputError: The prompt can't be used; the previous target is unchanged.
        """
        self.commit()
        size = _size(frame)
        box, marked = prompt.region(*size)
        if refine:
            self.memory.require_room_for_prompt()
        self._shown, window = None, self._make_window()
        views = window.starts(size, box, marked)
        answer = answer_prompt(self._pipeline, frame.image, prompt, views, asks_twice=self.searches)
        candidates, doubt = answer.candidates, answer.doubt
        visible = [seen for _, seen in candidates.visible]
        if box is None and not visible:
            raise InputError(
                f"the network finds nothing at the selected point {marked.cx, marked.cy}; draw a box instead"
            )
        others.require_free(box, candidates)
        if not refine:
            self.clear()
        self.others = others
        if self.searches and box is not None and self._is_blank and self._is_blank(frame.image, box):
            doubt = "weak selection: the box shows the same single shade as its surroundings"
        state, view = TrackState.ACQUIRING, answer.view
        context = FrameContext(frame, size, state, self._search, is_prompted=True, drawn=box, view=view)
        choice = self._policy.begin(candidates, context)
        start = choice.box or box or visible[0]
        self._start(context, window, start, choice)
        shown = start if doubt else box or start
        self._pending += [self.memory.make_plan, partial(self._add_prompt, frame, shown)]
        is_kept = self._remember(candidates, choice, context, confirmed=True)
        self._forget_points()
        if choice.box is not None:
            self._confirm(frame, camera, choice.box, (0.0, 0.0), is_kept)
        return self._track(frame, answer.view, candidates, choice, choice.reason or doubt)

    def _start(self, context: FrameContext, window: WholeImage, start: Box, choice: Choice) -> None:
        """The target is at this box of the prompted frame."""
        window.settle(start)
        self._window = window
        self._motion.start(context.frame.stamp_ns, start)
        self._search.stop()
        if self.searches:
            self._extent = make_extent(context.drawn, choice.box, context.size)
        self._target.select(context.frame.stamp_ns)
        self._last = context.frame.stamp_ns, context.size

    def _add_prompt(self, frame: Frame, box: Box) -> None:
        if self._describe is not None:
            self.gallery.add_prompt(self._describe(frame.image, [box])[0], frame.stamp_ns)

    # Predict

    def _predict(self, frame: Frame, camera: CameraAtImage | None) -> FrameContext:
        """Where the target is expected in this image, and whether the estimate of its motion holds."""
        previous, previous_size = self._last
        dt_s, size = (frame.stamp_ns - previous) * 1e-9, _size(frame)
        looks = Looks(self.gallery, frame.image, self._describe)
        work = FrameContext(frame, size, self._target.state, self._search, looks, dt_s, camera)
        if dt_s == 0:
            work.refusal = f"stamp {frame.stamp_ns} ns was already processed"
            return work
        if dt_s < 0:
            work.interruption = f"the image's stamp went back by {-dt_s:.3f} s"
        elif dt_s > (most_s := self._target.config.max_gap):
            work.interruption = f"no image for {dt_s:.2f} s (max_gap is {most_s:g} s)"
        elif size != previous_size:
            work.interruption = f"the image's size changed from {previous_size} to {size}"
        if camera is not None:
            self._follow_camera(camera, frame.stamp_ns, dt_s)
            work.state = self._target.state
        work.is_missed = bool(work.interruption) or work.state in MISSED
        known = None if work.interruption else self._motion.filter
        if known is not None:
            work.motion = known.predicted(frame.stamp_ns)
            work.expected = work.motion.at(frame.stamp_ns, camera=False)
        self._shown = None
        return work

    def _follow_camera(self, camera: CameraAtImage, stamp_ns: int, dt_s: float) -> None:
        """Move what is known in pixels by the camera's motion in the ``dt_s`` since the previous image."""
        matrix, is_missed = camera.motion.matrix, self._target.state in MISSED
        if is_missed and matrix is not None and self._motion.is_behind(matrix):
            self._motion.lose()
            self._target.lose()
        self._motion.follow_camera(matrix, dt_s)
        self._search.is_camera_known = matrix is not None
        if self._search.is_running:
            self._search.follow_camera(matrix)
        seen = self._search.last_seen
        if is_missed and self._search.compares(stamp_ns):
            kept = camera.source.since(seen and seen.image)
            if kept.matrix is not None:
                self._search.recognise_place(kept.matrix, stamp_ns)

    # View and attend

    def _search_view(self, work: FrameContext) -> None:
        """Choose the view of a missed target, by searching several windows where the policy does."""
        if work.view is not None:
            return
        stamp, size = work.frame.stamp_ns, work.size
        side, extent = self._pipeline.spec.image_side, self._window.extent(size)
        place = Box(0.0, 0.0, *size) if work.expected is None else work.expected.box  # where it may be
        # What is known in pixels must hold for this image.
        can_search = self.searches and work.dt_s >= 0 and size == self._last[1]
        if extent is not None and can_search:
            search, plan = self._search, self.memory.plan
            search.begin(size, self._motion.filter)
            budget = self.others.search_windows or self.config.search_windows
            windows = search.windows(stamp, size, extent, side, budget)
            try:
                found = self._pipeline.search(work.frame.image, windows, plan)
            except InputError as refusal:
                work.refusal = str(refusal)
                return
            own = [self.others.withheld(one, work.looks, None)[0] for one in found]
            seen = [self._policy.detections(candidates, work.looks) for candidates in own]
            search.observe(stamp, list(zip(windows, seen, strict=True)))
            work.view, work.windows = search.view(size, extent, side), tuple(windows)
        elif extent is not None and not self.searches and work.state is TrackState.LOST:
            self._search.begin(size, self._motion.filter)
            work.view = self._search.view(size, extent, side)
        else:
            age_s = math.inf if work.interruption else self._target.age_s(self._last[0])
            work.view = self._window.view(size, place, age_s)

    def _attend(self, work: FrameContext) -> None:
        """Have the network look at the frame's view, unless the image can't be used; the frame counts from
        here on."""
        if work.refusal:
            return
        frame, expected, was_seen = work.frame, work.expected, not work.is_missed
        assert work.view is not None
        plan = self.memory.plan
        try:
            self._pipeline.encode(frame.image, work.view)
        except InputError as refusal:
            work.refusal = str(refusal)
            return
        if work.interruption:
            self._interrupt(frame.stamp_ns, work.size)
            work.state = TrackState.LOST
        else:
            self._motion.filter = work.motion
        previous, _ = self._last
        self._last = frame.stamp_ns, work.size
        self._pipeline.attend(plan)
        work.is_attended, work.motion = True, self._motion.filter
        work.is_confirmed, work.confirmed_ns = self._target.confirmed, self._target.confirmed_ns
        # Between launch and wait: a GPU works meanwhile.
        if self._points is not None and expected is not None and was_seen:
            if frame.stamp_ns - previous > POINTS_VALID_NS:
                self._points.reset()
            work.points = self._points.follow(frame.image, expected.box)

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

    # Decide

    def _own(self, work: FrameContext) -> tuple[Candidates, int | None]:
        """The candidates, without those that are another target's, and that target's id."""
        candidates = self._pipeline.decode(None) if work.candidates is None else work.candidates
        if not self.others.rivals:
            return candidates, None
        is_expected = work.expected is not None and work.state is not TrackState.LOST
        predicted = work.expected.box if work.expected is not None and is_expected else None
        return self.others.withheld(candidates, work.looks, predicted)

    def _give_up(self, choice: Choice) -> Choice:
        """What is followed is another individual: it is not claimed, and what was remembered of it goes."""
        now, usual = self.gallery.likeness_now, self.gallery.usual
        self.memory.forget_from(self._sure_frame)
        self._target.lose()
        self._search.begin(self._last[1], self._motion.filter)
        known = f"{now:.2f}" if math.isnan(usual) else f"{now:.2f} of {usual:.2f}"
        reason = f"no longer like what was selected ({known})"
        return replace(choice, box=None, present=False, reason=reason)

    def _decide(self, choice: Choice, stamp_ns: int) -> bool:
        """Update the state; whether it claims the target."""
        if choice.box is None:
            self._target.miss(stamp_ns)
            return False
        return self._target.hit(stamp_ns)

    def _miss_unread(self, work: FrameContext) -> Track:
        """The Track of a frame whose candidates are no numbers."""
        stamp = work.frame.stamp_ns
        self.memory.skip()
        self._target.miss(stamp)
        self._motion.coast(stamp, was_seen=work.state not in MISSED)
        self._forget_points()
        reason = "the network's output is not finite; check the bundle"
        return self._track(work.frame, work.view, None, None, reason)

    # Update and remember

    def _update(
        self, work: FrameContext, candidates: Candidates, choice: Choice, confirmed: bool, is_kept: bool
    ) -> None:
        """Update motion and window by the box that was chosen, or by none. ``is_kept``: it is remembered."""
        stamp, box, expected = work.frame.stamp_ns, choice.box, work.expected
        if box is None:
            self._motion.coast(stamp, was_seen=work.state not in MISSED)
        else:
            if confirmed:
                self._window.update(box, max(0.0, work.dt_s))
            restart = choice.jumped or work.state is TrackState.LOST
            quality = float(candidates.ious[choice.index])
            self._motion.measure(stamp, box, quality, restart, choice.partial)
        if box is not None and confirmed:
            velocity = (0.0, 0.0) if expected is None else expected.velocity
            self._confirm(work.frame, work.camera, box, velocity, is_kept)
        else:
            self._forget_points()

    def _remember(
        self, candidates: Candidates, choice: Choice, context: FrameContext, confirmed: bool
    ) -> bool:
        """Have the frame stored in a slot of the ring if the policy keeps it; whether it does."""
        is_measured = confirmed and choice.box is not None and not context.is_prompted
        if is_measured and not self._extent.is_settled:
            self._extent.add(candidates, choice.index)
        # What hides the target, or is remembered beside another target, would be taken for it later.
        is_shared = choice.box is not None and any(iou(choice.box, o) > SHARED_IOU for o in self.others.boxes)
        is_unsure = self.gallery.is_doubted or is_shared
        unwanted = is_unsure and not context.is_prompted
        if unwanted or not self._policy.keeps(candidates, choice, context, confirmed):
            self.memory.skip()
            return False
        slot = self.memory.store(
            context.frame.stamp_ns,
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
        return True

    def _confirm(
        self,
        frame: Frame,
        camera: CameraAtImage | None,
        box: Box,
        velocity: tuple[float, float],
        is_kept: bool,
    ) -> None:
        """The state claims the target, which is seen in this box. ``velocity``: over the ground, px/s;
        ``is_kept``: the frame is remembered, so that its look may be learnt, too."""
        self._search.last_seen = Sighting(frame.stamp_ns, box, velocity)
        if camera is not None:
            self._pending.append(partial(self._keep_place, camera, [box, *self.others.boxes]))
        if self._search.is_running:
            self._search.stop()
        if self._points is not None:
            self._pending.append(partial(self._points.keep, frame.image, box))
        if self._describe is not None:
            self._pending.append(partial(self._look, frame, box, self.memory.count, is_kept))

    def _look(self, frame: Frame, box: Box, count: int, learns: bool) -> None:
        """Look at what is followed when it is due. ``count``: of `memory` after this frame."""
        if self._describe is None or not self.gallery.is_due(frame.stamp_ns):
            return
        self.gallery.look(self._describe(frame.image, [box])[0], frame.stamp_ns, learns)
        if not self.gallery.is_doubted:
            self._sure_frame = count

    def _keep_place(self, camera: CameraAtImage, boxes: Sequence[Box]) -> None:
        """Keep the image in which the target was seen, to recognise the place once it is missed."""
        if self._search.last_seen is not None:
            self._search.last_seen = replace(self._search.last_seen, image=camera.source.keep(boxes))

    def _forget_points(self) -> None:
        if self._points is not None:
            self._points.reset()

    # Tell

    def _track(
        self,
        frame: Frame,
        view: View | None,
        candidates: Candidates | None,
        choice: Choice | None,
        reason: str,
    ) -> Track:
        motion, state = None, self._target.state
        if self._motion.filter is not None and state is not TrackState.LOST:
            motion = self._motion.filter.at(frame.stamp_ns)
        self.moving = [] if motion is None else [motion.box]
        box, presence, quality, likeness = None, 0.0, 0.0, math.nan
        if candidates is not None and choice is not None:
            presence, quality = candidates.presence, float(candidates.ious[choice.index])
            likeness = self.gallery.likeness_now
            if choice.box is not None and motion is not None:
                self._shown, box = self._extent.shown(candidates, choice.index, choice.box, motion.box)
        measured = box is not None
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
            age_s=self._target.age_s(frame.stamp_ns),
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


def _size(frame: Frame) -> tuple[int, int]:
    return frame.image.width, frame.image.height
