"""The tracker: takes one frame and returns one Track."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.camera_motion import LEAST_DEPTH, relative_depth
from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.crop import CropPolicy, make_crop_policy
from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box, View
from efftam_ros.core.motion import MotionFilter
from efftam_ros.core.policies import make_policy
from efftam_ros.core.policies.base import Choice, Describe, FrameContext, SearchContext, no_description
from efftam_ros.core.states import TargetState
from efftam_ros.core.types import (
    MISSED,
    NO_POINTS,
    CameraMotion,
    Candidates,
    FoundPoints,
    Frame,
    Image,
    Motion,
    Prompt,
    ScoredBox,
    Track,
    TrackState,
)

if TYPE_CHECKING:
    from efftam_ros.core.contract import AppearanceSource, CameraMotionSource, Pipeline, PointSource

FIXED_SETTINGS = ("policy", "view", "window_factor", "camera_motion")

RECOGNITION_PERIOD_NS = 90_000_000
"""Least time between two comparisons with the kept image, which take 20 to 30 ms on a CPU."""

POINTS_VALID_NS = 250_000_000
"""Longest interval between two images over which points are followed; beyond it they are lost anyway."""

WHOLE_VALID_NS = 1_000_000_000
"""Greatest age of the motion of the whole target at which it is preferred to that of its last visible
part."""


class Tracker:
    """Tracks one target. Not thread-safe, except for `prefetch`. For the states see `states.TargetState`.

    `step` computes the answer; the frame's contribution to the memory is computed by `commit` after the
    answer was published, or at the start of the next step. With an asynchronous pipeline it is enqueued at
    once.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        config: TrackerConfig | None = None,
        camera: CameraMotionSource | None = None,
        appearance: AppearanceSource | None = None,
        points: PointSource | None = None,
    ) -> None:
        """Create a tracker in state IDLE.

        Args:
            pipeline: Runs the network.
            config: Settings; default: `TrackerConfig()`.
            camera: Source of the camera's motion for policies that use it; None: the camera is assumed not to
                move.
            appearance: Describes the appearance of boxes for policies that use it; None: not used.
            points: Follows points on the target for policies that search; None: not used.
        """
        self._pipeline = pipeline
        self._camera, self._appearance = camera, appearance
        self._config = config or TrackerConfig()
        self._policy = make_policy(pipeline.spec, self._config)
        self._points = points if self._policy.searches else None
        self._target = TargetState(self._config)
        self.clear()

    @property
    def state(self) -> TrackState:
        return self._target.state

    @property
    def config(self) -> TrackerConfig:
        return self._config

    def reconfigure(self, config: TrackerConfig) -> None:
        """Change thresholds from the next frame on. Raises InputError when a fixed setting differs."""
        for f in fields(config):
            old, new = getattr(self._config, f.name), getattr(config, f.name)
            if f.name in FIXED_SETTINGS and old != new:
                raise InputError(
                    f"{f.name} cannot change from {old!r} to {new!r} while tracking; make a new tracker"
                )
        self._config = self._target.config = self._policy.config = config

    def clear(self) -> None:
        """Clear the target: IDLE."""
        self._target.clear()
        self._policy.reset()
        self._crop_policy = self._make_crop_policy()
        self._stamp_ns: int | None = None
        self._image_size = (0, 0)
        self._motion: MotionFilter | None = None
        self._whole_motion: MotionFilter | None = None  # as the whole target was last visible
        self._recognition_ns: int | None = None  # when the kept image was last compared
        self._shown: int | None = None  # candidate whose mask belongs to the last Track
        # Arguments of `Pipeline.remember` and `PointSource.keep` for the last frame, which `commit` calls.
        self._pending_memory: tuple[int, int, bool] | None = None
        self._pending_points: tuple[Image, Box] | None = None
        self._forget_points()

    def _make_crop_policy(self) -> CropPolicy:
        spec, config = self._pipeline.spec, self._config
        kind = spec.default_view if config.view == "bundle" else config.view
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
        self.commit()
        if prompt is not None:
            return self._step_prompted(frame, prompt, refine)
        if self.state is TrackState.IDLE:
            return Track(frame.stamp_ns, self.state, image_size=_size(frame))
        if frame.stamp_ns == self._stamp_ns:
            return self._unprocessed(frame, f"stamp {frame.stamp_ns} ns was already processed")
        return self._step_tracked(frame)

    def look(self, image: Image, views: Sequence[View]) -> list[Candidates]:
        """The candidates in views of an image, by the present memory.

        Neither target nor memory changes; `mask` returns None until the next step. Raises InputError without
        a target, and for a bad image.
        """
        self.commit()
        if self.state is TrackState.IDLE:
            raise InputError("there is no target to look for; select one first")
        self._shown = None
        return self._pipeline.search(image, views, self._policy.memory.plan())

    def prefetch(self, image: Image) -> None:
        """Announce that `step` will probably get this image object next; from any thread."""
        if self.state is not TrackState.IDLE:
            self._pipeline.prefetch(image)

    def commit(self) -> None:
        """Compute the memory update decided in the last step, and choose the points to follow from its image;
        does nothing if there are none."""
        self._commit_memory()
        if self._pending_points is not None and self._points is not None:
            (image, box), self._pending_points = self._pending_points, None
            self._points.keep(image, box)

    def _commit_memory(self) -> None:
        if self._pending_memory is not None:
            arguments, self._pending_memory = self._pending_memory, None
            self._pipeline.remember(*arguments)

    def _forget_points(self) -> None:
        self._pending_points = None
        if self._points is not None:
            self._points.reset()

    def _step_prompted(self, frame: Frame, prompt: Prompt, refine: bool) -> Track:
        box, point = _prompt_region(prompt, *_size(frame))
        if refine:
            self._policy.memory.require_room_for_prompt()
        crop_policy = self._make_crop_policy()
        view = crop_policy.start(_size(frame), box, point)
        self._shown = None
        self._pipeline.encode(frame.image, view)
        candidates = self._pipeline.decode(prompt)
        if not candidates.is_finite:
            raise InputError("the network's output for the selected image is not finite; check the bundle")
        visible = [visible_box for _, visible_box in candidates.visible]
        if box is None and not visible:
            raise InputError(f"the network finds nothing at the selected point {point}; draw a box instead")
        if not refine:
            self.clear()
        context = FrameContext(
            frame.stamp_ns, view, TrackState.ACQUIRING, _size(frame), self._describer(frame), drawn=box
        )
        choice = self._policy.begin(candidates, context)
        start = choice.box or box or visible[0]
        crop_policy.settle(start)
        self._crop_policy, self._motion = crop_policy, MotionFilter(frame.stamp_ns, start)
        if self._camera is not None and self._policy.searches:
            self._camera.reset()
            self._camera.estimate(frame.image, frame.stamp_ns, None)
            if choice.box is not None:
                self._camera.keep(choice.box)
        self._whole_motion = None
        self._forget_points()
        if choice.box is not None:
            self._pending_points = frame.image, choice.box
        self._target.select(frame.stamp_ns)
        self._stamp_ns, self._image_size = frame.stamp_ns, _size(frame)
        self._remember(choice, self._policy.finish(candidates, choice, context, self._target.confirmed))
        return self._track(frame, view, candidates, choice, choice.reason)

    def _step_tracked(self, frame: Frame) -> Track:
        stamp, previous, size = frame.stamp_ns, self._stamp_ns, _size(frame)
        assert previous is not None
        interruption = self._interruption(stamp, previous, size)
        went_back, is_resized = stamp < previous, size != self._image_size
        describe = self._describer(frame)
        camera = self._follow_camera(frame, previous)
        believed, before = self._motion, self._target.state
        motion = believed.predicted(stamp) if believed is not None and not interruption else None
        expected = motion.ground if motion is not None else None
        self._shown = None
        try:
            searched = None
            if (interruption or before in MISSED) and not went_back and not is_resized:
                searched = self._search(frame, believed, describe)
            if searched is None:
                coasted_s = self._target.age_s(previous) if before is TrackState.COASTING else 0.0
                place = expected.box if expected is not None else None
                lost = before is TrackState.LOST or bool(interruption)
                searched = self._crop_policy.view(size, place, coasted_s, lost), ()
            view, windows = searched
            plan = self._policy.memory.plan()
            self._pipeline.encode(frame.image, view)
        except InputError as refusal:
            return self._unprocessed(frame, str(refusal))
        if interruption:
            self._target.lose(times_valid=not went_back)
            before = self._target.state
        if went_back:
            self._policy.restart_search()
        if is_resized:
            motion = self._resize(size, None if went_back else believed, stamp)
        self._motion = motion
        self._stamp_ns, self._image_size = stamp, size
        self._pipeline.attend(plan)
        candidates = self._pipeline.decode(None)
        if not candidates.is_finite:
            self._policy.memory.skip()
            self._target.miss(stamp)
            self._coast(stamp, before)
            self._forget_points()
            return self._track(
                frame, view, None, None, "the network's output is not finite; check the bundle"
            )
        points = NO_POINTS
        if expected is not None and before not in MISSED:
            points = self._follow_points(frame, previous, expected)
        context = FrameContext(stamp, view, before, size, describe, motion, expected, points=points)
        choice = self._policy.choose(candidates, context)
        confirmed = False
        if choice.box is not None:
            confirmed = self._target.hit(stamp)
        else:
            self._target.miss(stamp)
        self._remember(choice, self._policy.finish(candidates, choice, context, confirmed))
        if choice.box is not None:
            self._measure(choice.box, choice, candidates, context, previous, confirmed)
        else:
            self._coast(stamp, before)
        if choice.box is not None and confirmed:
            self._pending_points = frame.image, choice.box
        else:
            self._forget_points()
        # A confirmed target is not missed.
        hypotheses = () if confirmed else self._policy.hypotheses
        reason = interruption or choice.reason
        return self._track(frame, view, candidates, choice, reason, windows, hypotheses, camera)

    def _describer(self, frame: Frame) -> Describe:
        source = self._appearance
        return no_description if source is None else cache(partial(source.describe, frame.image))

    def _follow_camera(self, frame: Frame, previous: int) -> CameraMotion | None:
        """Transform the motion estimates by the camera's motion since the image of stamp ``previous``."""
        if self._camera is None or not self._policy.searches:
            return None
        has_box = self._motion is not None and self._target.state is not TrackState.LOST
        target = self._motion.box if self._motion is not None and has_box else None
        camera = self._camera.estimate(frame.image, frame.stamp_ns, target)
        dt_s = (frame.stamp_ns - previous) * 1e-9
        if self._motion is not None and camera.matrix is not None and self._target.state in MISSED:
            centre = self._motion.box
            if relative_depth(camera.matrix, centre.cx, centre.cy) < LEAST_DEPTH:
                # The position is behind the camera, or nearly so: it has no pixel coordinates any more.
                self._motion = self._whole_motion = None
                self._target.lose()
        whole = None if self._whole_motion is self._motion else self._whole_motion
        for motion in (self._motion, whole):
            if motion is not None and camera.matrix is not None and dt_s > 0:
                motion.follow_camera(camera.matrix, dt_s)
            elif motion is not None:
                motion.camera_unknown()
        self._policy.follow_camera(camera.matrix)
        if self._target.state in MISSED:
            self._recognise_place(self._camera, frame.stamp_ns)
        return camera

    def _follow_points(self, frame: Frame, previous: int, expected: Motion) -> FoundPoints:
        if frame.stamp_ns - previous > POINTS_VALID_NS:
            self._forget_points()
        return NO_POINTS if self._points is None else self._points.follow(frame.image, expected.box)

    def _recognise_place(self, camera: CameraMotionSource, stamp_ns: int) -> None:
        if self._recognition_ns is not None and 0 <= stamp_ns - self._recognition_ns < RECOGNITION_PERIOD_NS:
            return
        self._recognition_ns = stamp_ns
        kept = camera.since_kept()
        if kept.matrix is not None:
            self._policy.recognise_place(kept.matrix, stamp_ns)

    def _search(
        self, frame: Frame, believed: MotionFilter | None, describe: Describe
    ) -> tuple[View, tuple[View, ...]] | None:
        """Search an image for the missed target.

        Returns the view of the frame's own look and the windows that were searched to choose it; None where
        there is nothing to search. ``believed``: the motion estimate before this frame, kept even after an
        interruption. Raises InputError for a bad image.
        """
        size = _size(frame)
        extent = self._crop_policy.extent(size)
        if extent is None or not self._policy.searches:
            return None
        state, side = self._target.state, self._pipeline.spec.image_side
        context = SearchContext(frame.stamp_ns, size, state, believed, extent, side, describe)
        windows = self._policy.windows(context)
        if not windows:
            return None
        found = self._pipeline.search(frame.image, windows, self._policy.memory.plan())
        return self._policy.view_after_search(windows, found, context), tuple(windows)

    def _resize(
        self, size: tuple[int, int], believed: MotionFilter | None, stamp_ns: int
    ) -> MotionFilter | None:
        """Carry over what is known in pixels to images of another size, which show the same scene; returns
        where the target is believed to be in them."""
        across, down = (now / before for now, before in zip(size, self._image_size, strict=True))
        matrix = np.diag([across, down, 1.0])
        self._crop_policy.resize(math.sqrt(across * down))
        self._policy.resize(matrix)
        self._whole_motion = None
        if believed is None:
            return None
        moved = believed.predicted(stamp_ns)
        moved.follow_camera(matrix)
        return moved

    def _interruption(self, stamp: int, previous: int, size: tuple[int, int]) -> str:
        """Why the motion estimate no longer holds; empty if it does."""
        dt = (stamp - previous) * 1e-9
        if dt < 0:
            return f"the image's stamp went back by {-dt:.3f} s"
        if dt > self._config.max_gap:
            return f"no image for {dt:.2f} s (max_gap is {self._config.max_gap:g} s)"
        if size != self._image_size:
            return f"the image's size changed from {self._image_size} to {size}"
        return ""

    def _measure(
        self,
        box: Box,
        choice: Choice,
        candidates: Candidates,
        context: FrameContext,
        previous: int,
        confirmed: bool,
    ) -> None:
        """Update motion and crop by the accepted box. ``previous``: the stamp before this frame's."""
        if self._motion is None or choice.jumped or context.state is TrackState.LOST:
            self._motion = MotionFilter(context.stamp_ns, box)
        else:
            self._motion.update(box, float(candidates.ious[choice.index]))
        if not choice.partial or choice.jumped:
            self._whole_motion = self._motion
        if not confirmed:
            return
        self._crop_policy.update(box, max(0.0, (context.stamp_ns - previous) * 1e-9))
        if self._camera is not None and self._policy.searches:
            self._camera.keep(box)

    def _coast(self, stamp: int, before: TrackState) -> None:
        """Continue the motion without a measurement. ``before``: the state before this frame."""
        was_seen = before not in MISSED
        if (
            was_seen
            and self._whole_motion is not None
            and stamp - self._whole_motion.stamp_ns < WHOLE_VALID_NS
        ):
            # While a target disappears behind an occluder, its boxes lag and stop at the edge; coasting
            # therefore continues from the last motion of the whole target.
            self._motion, self._whole_motion = self._whole_motion, None
            self._motion.predict(stamp)
        if self._motion is not None:
            self._motion.coast()

    def _remember(self, choice: Choice, slot: int | None) -> None:
        """Have the frame stored in a slot of the ring; None: it is not stored."""
        if slot is not None:
            self._pending_memory = (choice.index, slot, choice.present)
            if self._pipeline.is_asynchronous:
                self._commit_memory()

    def _track(
        self,
        frame: Frame,
        view: View,
        candidates: Candidates | None,
        choice: Choice | None,
        reason: str,
        windows: tuple[View, ...] = (),
        hypotheses: tuple[ScoredBox, ...] = (),
        camera: CameraMotion | None = None,
    ) -> Track:
        motion, extent = None, self._policy.extent
        if self._motion is not None and self._target.state is not TrackState.LOST:
            motion = self._motion.motion
        box, presence, quality = None, 0.0, 0.0
        if candidates is not None and choice is not None:
            presence, quality = candidates.presence, float(candidates.ious[choice.index])
            if choice.box is not None and motion is not None:
                self._shown, box = extent.shown(candidates, choice.index, choice.box, motion.box)
        measured = box is not None
        if motion is not None:
            motion = extent.grown_motion(motion)
            box = box or motion.box
        return Track(
            stamp_ns=frame.stamp_ns,
            state=self._target.state,
            box=box,
            measured=measured,
            presence=presence,
            quality=quality,
            age_s=0.0 if measured else self._target.age_s(frame.stamp_ns),
            motion=motion,
            view=view,
            image_size=self._image_size,
            reason=reason,
            stage_seconds=dict(self._pipeline.stage_seconds),
            windows=windows,
            hypotheses=hypotheses,
            camera=camera,
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
        if self._motion is None or self.state is TrackState.LOST or stamp_ns < self._motion.stamp_ns:
            return None
        return self._policy.extent.grown_motion(self._motion.at(stamp_ns))


def _size(frame: Frame) -> tuple[int, int]:
    return frame.image.width, frame.image.height


def _prompt_region(prompt: Prompt, width: int, height: int) -> tuple[Box | None, tuple[float, float] | None]:
    """The box enclosed by a prompt in an image of this size, or the point it marks.

    Raises InputError when it marks nothing in the image.
    """
    if not all(math.isfinite(v) for point in prompt.points for v in point):
        raise InputError(f"the selection's points are {prompt.points}; their coordinates must be finite")
    if prompt.box is not None:
        if prompt.box.is_empty:
            raise InputError(
                f"the selection is {prompt.box.xywh()} px; it needs finite numbers, width and height above 0"
            )
        # The window is sized by the visible part.
        visible = prompt.box.clipped(width, height)
        if visible.is_empty:
            raise InputError(
                f"the selection is {prompt.box.xywh()} px, outside the image of {width} x {height} px"
            )
        return visible, None
    if prompt.mask is not None:
        ys, xs = np.flatnonzero(prompt.mask.any(axis=1)), np.flatnonzero(prompt.mask.any(axis=0))
        if not len(ys):
            raise InputError("the selection's mask is empty; mark the target's pixels")
        return Box.from_edges(xs[0], ys[0], xs[-1] + 1, ys[-1] + 1), None
    on = [p for p, label in zip(prompt.points, prompt.labels, strict=False) if label == 1]
    if not on:
        raise InputError("the selection marks nothing; give a box, a mask or a point on the target")
    return None, on[0]
