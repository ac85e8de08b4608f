"""The tracker of one target: what is predicted, decided and remembered in each image."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.contract import Look, Remembered
from efftam_ros.core.crop import WholeImage, make_crop_policy
from efftam_ros.core.errors import InputError
from efftam_ros.core.gallery import ALONE, SHARED_IOU, Describe, Gallery, Looks, Others
from efftam_ros.core.geometry import Box, View, iou
from efftam_ros.core.memory import MemoryBank
from efftam_ros.core.motion import CameraAtImage, MotionFilter, TargetMotion
from efftam_ros.core.policies.base import Choice, FrameContext, Policy
from efftam_ros.core.policies.default import DefaultPolicy
from efftam_ros.core.policies.drawn_box import TargetExtent
from efftam_ros.core.policies.search import Reacquisition, Sighting
from efftam_ros.core.reasons import NO_REASON, Reason, ReasonCode
from efftam_ros.core.selection import answer_prompt, whole
from efftam_ros.core.types import (
    MISSED,
    Candidates,
    Frame,
    Motion,
    PipelineSpec,
    Prompt,
    ScoredBox,
    Track,
    TrackState,
)

if TYPE_CHECKING:
    from efftam_ros.core.contract import Answers, Pipeline
    from efftam_ros.core.types import Image

MakePolicy = Callable[[PipelineSpec, TrackerConfig], Policy]
FIXED_SETTINGS = ("policy", "view", "window_factor", "camera_motion", "identity")


def missed_state(missed_s: float, lost_after: float) -> TrackState:
    """Return the state of a missed target: COASTING up to ``lost_after`` s, then LOST.

    ``missed_s``: time since the target was confirmed last, s; NaN if it never was.
    """
    return TrackState.COASTING if missed_s <= lost_after else TrackState.LOST


class TargetState:
    """The state machine of one target.

    A selection starts ACQUIRING. Enough frames in a row with an accepted box lead to TRACKING. A frame
    without one leads to COASTING, and to LOST once the last confirmed box is older than ``lost_after``. An
    accepted box while COASTING or LOST starts ACQUIRING again, so that a return is not reported before it is
    confirmed.
    """

    def __init__(self, config: TrackerConfig) -> None:
        self.config = config
        self.clear()

    def clear(self) -> None:
        """Become IDLE."""
        self.state = TrackState.IDLE
        self.measured_ns: int | None = None
        """Stamp of the last accepted box; None before the first."""
        self.confirmed_ns: int | None = None
        """Stamp of the last accepted box while `confirmed`; None before the first."""
        self.confirmed = False
        """Whether accepted boxes are claimed: in TRACKING, and in ACQUIRING after a selection, but not in
        ACQUIRING after a return."""
        self._streak = 0  # number of accepted boxes in a row
        self._returning = False  # whether the target is ACQUIRING after it was missed

    def select(self, stamp_ns: int) -> None:
        """Start ACQUIRING, because the user selected the target on the frame of this stamp."""
        self.clear()
        self.state = TrackState.ACQUIRING
        self.hit(stamp_ns)

    def hit(self, stamp_ns: int) -> bool:
        """Count a frame with an accepted box. Returns `confirmed`."""
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
        """Count a frame without an accepted box."""
        self._streak, self.confirmed = 0, False
        if self.state is not TrackState.LOST:
            confirmed_ns = self.confirmed_ns
            missed_s = math.nan if confirmed_ns is None else (stamp_ns - confirmed_ns) * 1e-9
            self.state = missed_state(missed_s, self.config.lost_after)

    def lose(self, times_valid: bool = True) -> None:
        """Become LOST, because the target's position is not known any more. ``times_valid``: False where the
        stamps went back, so that earlier stamps can't be compared with later ones."""
        self.state, self._streak, self.confirmed = TrackState.LOST, 0, False
        if not times_valid:
            self.measured_ns = self.confirmed_ns = None

    def age_s(self, stamp_ns: int) -> float:
        """Return the time from the last accepted box to this stamp, s; NaN before the first box."""
        return float("nan") if self.measured_ns is None else (stamp_ns - self.measured_ns) * 1e-9


@dataclass(frozen=True)
class Prediction:
    """The result of `TargetTracker.predict` for one image.

    Attributes:
        frame: The image and its stamp.
        state: State of the target before this image is judged.
        dt_s: Time since the target's previous image, s.
        camera: The camera's motion up to this image; None: the camera is assumed not to move.
        interruption: Why this image does not continue the previous ones; empty if it does.
        expected: The predicted motion, with the velocity relative to the ground; None if the target's
            position is unknown.
        look: The request to the network. A search is followed by a second look, at the best place it found.
    """

    frame: Frame
    state: TrackState
    dt_s: float
    camera: CameraAtImage | None
    interruption: Reason
    expected: Motion | None
    look: Look


@dataclass(frozen=True)
class Answered:
    """The facts of an answered image that `TargetTracker.learn` needs.

    Attributes:
        frame: The image and its stamp.
        camera: The camera's motion up to this image; None: the camera is assumed not to move.
        remembered: What the network stores of this image; None: nothing.
        prompted: On the image of a selection, the box whose look becomes the first of the gallery; else None.
        confirmed: The target's box, px, if it is claimed; None if it is not.
        count: Value of `MemoryBank.count` after this image.
    """

    frame: Frame
    camera: CameraAtImage | None
    remembered: Remembered | None = None
    prompted: Box | None = None
    confirmed: Box | None = None
    count: int = 0


class TargetTracker:
    """Tracks one target. Not thread-safe. For the states see `TargetState`.

    For each image a `TargetSet` calls `predict`, passes the returned look to the network, and calls `decide`.
    Once the answer is published it reads `remembered` and calls `learn`. On the image on which the target is
    selected, `select` replaces `predict` and `decide`.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        number: int,
        config: TrackerConfig | None = None,
        is_blank: Callable[[Image, Box], bool] | None = None,
        describe: Describe | None = None,
        make_policy: MakePolicy = DefaultPolicy,
    ) -> None:
        """Create a tracker in state IDLE.

        Args:
            pipeline: Runs the network.
            number: Number of the target's memory in the pipeline.
            config: Settings; default: `TrackerConfig()`.
            is_blank: Returns whether a box of an image, px, and its surroundings have one single shade, so
                that there is nothing to recognise; None: not checked.
            describe: The identity network; None: likeness is not used.
            make_policy: Makes the policy that decides.
        """
        config = config or TrackerConfig()
        self._pipeline, self._number = pipeline, number
        self._policy = make_policy(pipeline.spec, config)
        self._is_blank, self._describe = is_blank, describe
        self._target = TargetState(config)
        self.clear()

    @property
    def state(self) -> TrackState:
        return self._target.state

    @property
    def config(self) -> TrackerConfig:
        return self._target.config

    def reconfigure(self, config: TrackerConfig) -> None:
        """Use other settings from the next frame on. Raises InputError if one of `FIXED_SETTINGS` differs."""
        for f in fields(config):
            old, new = getattr(self.config, f.name), getattr(config, f.name)
            if f.name in FIXED_SETTINGS and old != new:
                raise InputError(
                    f"{f.name} cannot change from {old!r} to {new!r} while tracking; make a new tracker"
                )
        self._target.config = self._policy.config = config

    def clear(self) -> None:
        """Forget the target. The state becomes IDLE."""
        self._target.clear()
        self._policy.reset()
        self.others = ALONE
        """The other targets in the last image."""
        self.memory = MemoryBank(self._policy.rule, self._pipeline.spec.slots)
        """The remembered frames, and the plan of those that the next frame attends to."""
        self._motion = TargetMotion()
        self._search = Reacquisition()
        self.gallery = Gallery()
        """The target's kept looks."""
        # Frames of the memory from this number on are forgotten if the followed object turns out to be
        # another individual.
        self._sure_frame = 0
        self._window = self._make_window()
        self._extent = TargetExtent()
        self.moving: list[Box] = []
        """The box of the target in the last image, px, which the estimate of the camera's motion leaves out;
        empty if the target is lost."""
        self.stamp_ns = 0
        """Stamp of the last image that was used, ns."""
        self._size = (0, 0)  # width and height of the last image that was used, px
        self._prediction: Prediction | None = None
        self._answers: Answers | None = None  # the network's answers for the last image
        self._shown: int | None = None  # index of the candidate whose mask belongs to the last Track
        self._answered: Answered | None = None  # facts of the last image, until `learn` has used them

    def _make_window(self) -> WholeImage:
        spec, config = self._pipeline.spec, self.config
        kind = self._policy.view(spec.default_view) if config.view == "bundle" else config.view
        return make_crop_policy(kind, spec.image_side, config.window_factor or spec.window_factor)

    # Methods that predict the target in an image

    def predict(self, frame: Frame, camera: CameraAtImage | None = None, windows: int | None = None) -> Look:
        """Predict where the target is in this image, and return the request to the network.

        The target must not be IDLE.

        Args:
            frame: The image and its stamp. The stamp must differ from that of the last used image, the
                tracker's `stamp_ns`.
            camera: The camera's motion up to this image; None: the camera is assumed not to move.
            windows: Largest number of windows that are searched if the target is missed; None: as the
                settings allow.
        """
        previous, previous_size = self.stamp_ns, self._size
        stamp, size = frame.stamp_ns, (frame.image.width, frame.image.height)
        self.stamp_ns, self._size = stamp, size
        self._shown = self._answers = None
        dt_s, interruption = (stamp - previous) * 1e-9, NO_REASON
        is_gap = dt_s > self._target.config.max_gap
        if camera is not None:
            self._follow_camera(camera, stamp, dt_s)
        if dt_s < 0 or is_gap or size != previous_size:
            interruption = self._interrupt(previous_size, size, stamp, dt_s)
        before, expected = self._motion.filter, None
        if before is not None and not is_gap:
            self._motion.filter = before.predicted(stamp)
            expected = self._motion.filter.at(stamp, camera=False)
        elif is_gap:
            self._motion.lose()
        if self._target.state not in MISSED:
            assert expected is not None
            look = Look(self._number, (self._window.view(size, expected.box, 0.0),), self.memory.plan)
        else:
            age_s = math.inf if is_gap or dt_s < 0 else self._target.age_s(previous)
            look = self._look_for_missed(frame, dt_s, before, expected, age_s, windows)
        self._prediction = Prediction(frame, self._target.state, dt_s, camera, interruption, expected, look)
        return look

    def _look_for_missed(
        self,
        frame: Frame,
        dt_s: float,
        before: MotionFilter | None,
        expected: Motion | None,
        age_s: float,
        windows: int | None,
    ) -> Look:
        """Return the request to the network for a missed target: a search, or a look at one place.

        Args:
            frame: The image and its stamp.
            dt_s: Time since the previous image, s.
            before: The motion filter at the previous image; None if the position was unknown.
            expected: The predicted motion; None if the position is unknown.
            age_s: Age of the last measured box at the previous image, s; infinite where the motion up to that
                image is no longer valid.
            windows: Largest number of windows that are searched; None: as the settings allow.
        """
        size, side = _size(frame), self._pipeline.spec.image_side
        extent = self._window.extent(size)
        searches = dt_s >= 0 and self._policy.searches(self.state, math.isinf(age_s))
        if extent is None or not searches:
            place = Box(0.0, 0.0, *size) if expected is None else expected.box
            return Look(self._number, (self._window.view(size, place, age_s),), self.memory.plan)
        self._search.begin(size, before)
        most = self._policy.search_windows
        budget = most if windows is None else min(windows, most)
        if budget == 0:
            return Look(self._number, (self._search.view(size, extent, side),), self.memory.plan)
        searched = self._search.windows(frame.stamp_ns, size, extent, side, budget)
        return Look(self._number, tuple(searched), self.memory.plan, is_search=True)

    def _interrupt(
        self, previous_size: tuple[int, int], size: tuple[int, int], stamp_ns: int, dt_s: float
    ) -> Reason:
        """Update state and motion for an image that does not continue the previous ones. Returns the reason.

        There are three possible reasons: the stamps went back, the images' size changed, or there was no
        image for longer than ``max_gap``. An image of another size is assumed to show the same scene:
        positions in px are scaled to it.
        """
        reason = NO_REASON
        if dt_s < 0:
            reason = ReasonCode.STAMP_WENT_BACK.reason(back_s=-dt_s)
            self._target.lose(times_valid=False)
            self._search.stop()
            self._motion.lose()
        if size != previous_size:
            across, down = (now / before for now, before in zip(size, previous_size, strict=True))
            matrix = np.diag([across, down, 1.0])
            self._window.resize(math.sqrt(across * down))
            self._policy.resize(float(np.linalg.det(matrix[:2, :2])))
            self._search.resize(matrix)
            self._motion.resize(matrix, stamp_ns)
            self._target.miss(stamp_ns)
            reason = reason or ReasonCode.SIZE_CHANGED.reason(before=previous_size, now=size)
        if dt_s > self.config.max_gap:
            reason = ReasonCode.IMAGE_GAP.reason(gap_s=dt_s, max_gap=self.config.max_gap)
            self._target.lose()
        return reason

    def _follow_camera(self, camera: CameraAtImage, stamp_ns: int, dt_s: float) -> None:
        """Apply the camera's motion to all positions in px: those of the motion filter and of the search.
        ``dt_s``: time since the previous image, s."""
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

    # Methods that decide where the target is

    def decide(self, answers: Answers, others: Others = ALONE) -> Track:
        """Decide which candidate is the target, if any, update all that is known of it, and return its Track.

        ``answers``: the network's answers to the look that `predict` returned; ``others``: the other targets
        in this image.
        """
        predicted, self._prediction, self.others = self._prediction, None, others
        assert predicted is not None, "predict comes first"
        looks = Looks(self.gallery, predicted.frame.image, self._describe)
        look, holder, seconds = predicted.look, None, dict[str, float]()
        windows = look.views if look.is_search else ()
        if look.is_search:
            found = answers.candidates(self._number)
            seconds |= answers.stage_seconds(self._number)
            look = self._look_at_best(predicted, found, looks)
            answers = self._pipeline.look(predicted.frame.image, [look])
        (candidates,) = answers.candidates(self._number)
        (view,) = look.views
        self._answers = answers
        seconds |= answers.stage_seconds(self._number)
        if others.rivals:
            candidates, holder = self._own(predicted, candidates, looks)
        context = FrameContext(
            frame=predicted.frame,
            size=self._size,
            state=predicted.state,
            search=self._search,
            looks=looks,
            motion=self._motion.filter,
            expected=predicted.expected,
            view=view,
            is_confirmed=self._target.confirmed,
            confirmed_ns=self._target.confirmed_ns,
        )
        if not candidates.is_finite:
            return replace(self._miss_unread(predicted), view=view, stage_seconds=seconds)
        choice = self._policy.choose(candidates, context)
        if choice.box is None:
            self.gallery.miss()
        elif self.gallery.is_other:
            choice = self._give_up(choice)
        self._update(predicted, candidates, choice, context)
        reason = predicted.interruption or choice.reason
        if choice.box is None and holder is not None:
            reason = ReasonCode.OTHER_TARGET.reason(target=holder, own=reason)
        track = self._track(predicted.frame, view, candidates, choice, reason)
        tracks = self._search.tracks
        hypotheses = tuple(ScoredBox(one.box, one.score) for one in tracks) if tracks else ()
        motion = None if predicted.camera is None else predicted.camera.motion
        return replace(
            track,
            confidence=math.nan if choice.box is None else choice.confidence,
            windows=windows,
            hypotheses=hypotheses,
            camera=motion,
            stage_seconds=seconds,
        )

    def _look_at_best(self, predicted: Prediction, found: Sequence[Candidates], looks: Looks) -> Look:
        """Return the look that follows a search: at the place where the target most probably is.

        ``found``: the candidates in each window that was searched.
        """
        own = [self.others.withheld(one, looks, None)[0] for one in found]
        seen = self._policy.detections(own, looks)
        self._search.observe(predicted.frame.stamp_ns, list(zip(predicted.look.views, seen, strict=True)))
        extent = self._window.extent(self._size)
        assert extent is not None
        view = self._search.view(self._size, extent, self._pipeline.spec.image_side)
        return Look(self._number, (view,), self.memory.plan)

    def _own(
        self, predicted: Prediction, candidates: Candidates, looks: Looks
    ) -> tuple[Candidates, int | None]:
        """Take away the candidates that are another target's object, see `Others.withheld`."""
        is_expected = predicted.expected is not None and predicted.state is not TrackState.LOST
        box = predicted.expected.box if predicted.expected is not None and is_expected else None
        return self.others.withheld(candidates, looks, box)

    def _give_up(self, choice: Choice) -> Choice:
        """Stop following an object that turned out to be another individual. The target becomes LOST, frames
        of that object leave the memory, and the returned choice claims no box."""
        now, usual = self.gallery.likeness_now, self.gallery.usual
        self.memory.forget_from(self._sure_frame)
        self._target.lose()
        self._search.begin(self._size, self._motion.filter)
        known = f"{now:.2f}" if math.isnan(usual) else f"{now:.2f}, usually {usual:.2f}"
        reason = ReasonCode.CHANGED.reason(likeness=known)
        return replace(choice, box=None, present=False, reason=reason)

    def _miss_unread(self, predicted: Prediction) -> Track:
        """Count the frame as missed, because the network's output is NaN or infinite, and return its
        Track."""
        frame = predicted.frame
        self.memory.skip()
        self._target.miss(frame.stamp_ns)
        self._motion.coast(frame.stamp_ns, was_seen=predicted.state not in MISSED)
        self._answered = Answered(frame, predicted.camera, count=self.memory.count)
        return self._track(frame, None, None, None, ReasonCode.NOT_FINITE.reason())

    # Methods that update what is known of the target

    def _update(
        self, predicted: Prediction, candidates: Candidates, choice: Choice, context: FrameContext
    ) -> None:
        """Update state, memory, window and motion by the policy's choice, which may be that no box is
        accepted."""
        stamp, box, confirmed = predicted.frame.stamp_ns, choice.box, False
        if box is None:
            self._target.miss(stamp)
        else:
            confirmed = self._target.hit(stamp)
        remembered = self._keep(candidates, choice, context, confirmed)
        if box is None:
            self._motion.coast(stamp, was_seen=predicted.state not in MISSED)
        else:
            if confirmed:
                self._window.update(box, max(0.0, predicted.dt_s))
            restart = choice.jumped or predicted.state is TrackState.LOST
            self._motion.measure(stamp, box, float(candidates.ious[choice.index]), restart, choice.partial)
        seen = box if confirmed else None
        self._close(predicted.frame, predicted.camera, seen, remembered, predicted.expected)

    def _keep(
        self, candidates: Candidates, choice: Choice, context: FrameContext, confirmed: bool
    ) -> Remembered | None:
        """Have the memory bank store this frame or skip it. Returns the request to the network; None if the
        frame is not stored."""
        is_measured = confirmed and choice.box is not None and not context.is_prompted
        if is_measured and not self._extent.is_settled:
            self._extent.add(candidates, choice.index)
        # A remembered image of an occluder, or of a second target in the same mask, would later let the
        # network follow that object.
        box, others = choice.box, self.others.boxes
        is_shared = bool(others) and box is not None and any(iou(box, one) > SHARED_IOU for one in others)
        is_unsure = self.gallery.is_doubted or is_shared
        unwanted = is_unsure and not context.is_prompted
        if unwanted or not self._policy.keeps(candidates, choice, context, confirmed):
            self.memory.skip()
            return None
        slot = self.memory.store(
            context.frame.stamp_ns,
            float(candidates.ious[choice.index]),
            candidates.presence_logit,
            choice.motion_iou,
            context.is_prompted,
        )
        return Remembered(self._number, choice.index, slot, choice.present)

    def _close(
        self,
        frame: Frame,
        camera: CameraAtImage | None,
        confirmed: Box | None,
        remembered: Remembered | None,
        expected: Motion | None,
        prompted: Box | None = None,
    ) -> None:
        """Finish the decisions about an image, and note the facts that `learn` needs.

        For the arguments see `Answered`, for ``expected`` see `Prediction`.
        """
        if confirmed is not None:
            velocity = (0.0, 0.0) if expected is None else expected.velocity
            self._search.last_seen = Sighting(frame.stamp_ns, confirmed, velocity)
            if self._search.is_running:
                self._search.stop()
        self._answered = Answered(frame, camera, remembered, prompted, confirmed, self.memory.count)

    # Methods that run after the answer was published

    @property
    def remembered(self) -> Remembered | None:
        """The request to the network to store the last answered image; None: nothing is stored."""
        return None if self._answered is None else self._answered.remembered

    def learn(self) -> None:
        """Compute what later images need of the last answered one. A second call does nothing.

        This is the plan of the memory, the image by which the place of a lost target is recognised, and the
        target's look.
        """
        answered, self._answered = self._answered, None
        if answered is None:
            return
        frame, box = answered.frame, answered.confirmed
        self.memory.make_plan()
        if answered.prompted is not None and self._describe is not None:
            vector = self._describe(frame.image, [answered.prompted])[0]
            self.gallery.add_prompt(vector, frame.stamp_ns)
        if box is None:
            return
        if answered.camera is not None and self._search.last_seen is not None:
            image = answered.camera.source.keep([box, *self.others.boxes])
            self._search.last_seen = replace(self._search.last_seen, image=image)
        if self._describe is not None and self.gallery.is_due(frame.stamp_ns):
            vector = self._describe(frame.image, [box])[0]
            self.gallery.look(vector, frame.stamp_ns, learns=answered.remembered is not None)
            if not self.gallery.is_doubted:
                self._sure_frame = answered.count

    # Methods that answer a prompt

    def select(
        self,
        frame: Frame,
        prompt: Prompt,
        others: Others = ALONE,
        camera: CameraAtImage | None = None,
    ) -> Track:
        """Select a target on this image. All that was known of the previous target is forgotten.

        Args:
            frame: The image and its stamp.
            prompt: Marks the target, in px of the image.
            others: The other targets in this image.
            camera: The source of the camera's motion at this image; None: the camera is assumed not to move.

        Raises:
            InputError: The prompt can't be used. The previous target is unchanged.
        """
        size = _size(frame)
        box, marked = prompt.region(*size)
        self._shown, window = None, self._make_window()
        views = window.starts(size, box, marked)
        answer = answer_prompt(
            self._pipeline, self._number, frame.image, prompt, views, asks_twice=self._policy.asks_twice
        )
        candidates, doubt = answer.candidates, answer.doubt
        visible = [seen for _, seen in candidates.visible]
        if box is None and not visible:
            place = f"the selected point {marked.cx, marked.cy}"
            raise InputError(ReasonCode.NOTHING_FOUND.reason(place=place))
        others.require_free(box, candidates)
        self.clear()
        self.others, self._answers = others, answer.answers
        if box is not None and self._is_blank is not None and self._is_blank(frame.image, box):
            doubt = ReasonCode.BLANK_BOX.reason()
        state = TrackState.ACQUIRING
        context = FrameContext(
            frame, size, state, self._search, is_prompted=True, drawn=box, view=answer.view
        )
        choice = self._policy.begin(candidates, context)
        start = choice.box or box or visible[0]
        window.settle(start)
        self._window, self.stamp_ns, self._size = window, frame.stamp_ns, size
        self._motion.start(frame.stamp_ns, start)
        self._extent = self._policy.extent(box, choice.box, size)
        self._target.select(frame.stamp_ns)
        remembered = self._keep(candidates, choice, context, confirmed=True)
        prompted = start if doubt else box or start
        self._close(frame, camera, choice.box, remembered, expected=None, prompted=prompted)
        track = self._track(frame, answer.view, candidates, choice, choice.reason or doubt)
        return replace(track, stage_seconds=dict(answer.answers.stage_seconds(self._number)))

    def propose(self, frame: Frame, prompt: Prompt) -> Box | None:
        """Return the box, px, that the network gives for a prompt; None if the network finds nothing.

        Nothing is selected or remembered, and the target is unchanged. The mask of the last Track can't be
        read any more. Raises InputError when the prompt can't be used.
        """
        self._shown = None
        size = _size(frame)
        views = self._make_window().starts(size, *prompt.region(*size))
        candidates = answer_prompt(self._pipeline, self._number, frame.image, prompt, views).candidates
        box = candidates.box(whole(candidates)).clipped(*size)
        return None if box.is_empty else box

    # Methods that describe the target to others

    def _track(
        self,
        frame: Frame,
        view: View | None,
        candidates: Candidates | None,
        choice: Choice | None,
        reason: Reason,
    ) -> Track:
        """Return the Track of an image. ``candidates`` and ``choice`` are None where the network's output
        could not be used."""
        motion, state, age_s = None, self._target.state, self._target.age_s(frame.stamp_ns)
        if self._motion.filter is not None and state is not TrackState.LOST:
            motion = self._motion.filter.at(frame.stamp_ns)
        self.moving = [] if motion is None else [motion.box]
        box, presence, quality, likeness = None, 0.0, 0.0, math.nan
        if candidates is not None and choice is not None:
            presence, quality = candidates.presence, float(candidates.ious[choice.index])
            likeness = self.gallery.likeness_now
            if choice.box is not None and motion is not None:
                self._shown, box = self._extent.shown(
                    candidates, choice.index, choice.box, motion.box, self._size
                )
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
            age_s=age_s,
            motion=motion,
            view=view,
            image_size=self._size,
            reason=reason,
        )

    def refused(self, frame: Frame, reason: Reason) -> Track:
        """Return the Track of an image that can't be used. The mask can't be read then, except if this is the
        last image again."""
        if frame.stamp_ns != self.stamp_ns:
            self._shown = None
        return Track(frame.stamp_ns, self.state, image_size=_size(frame), reason=reason, processed=False)

    def mask(self) -> NDArray[np.uint8] | None:
        """Return the target's mask in the last image, uint8 [H, W], 255 on the target, 0 elsewhere; None if
        the box was not measured there."""
        if self._shown is None or self._answers is None:
            return None
        return self._answers.mask(self._number, self._shown)

    def motion_at(self, stamp_ns: int) -> Motion | None:
        """Return the target's motion predicted for this stamp; None if the target's position is unknown, or
        the stamp is earlier than the last image. The tracker does not change."""
        motion = self._motion.filter
        if motion is None or self._target.state is TrackState.LOST or stamp_ns < motion.stamp_ns:
            return None
        return self._extent.grown_motion(motion.at(stamp_ns))


def _size(frame: Frame) -> tuple[int, int]:
    return frame.image.width, frame.image.height
