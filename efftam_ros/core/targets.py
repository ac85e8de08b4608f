"""Follows several targets at once, with one tracker for each. `TargetSet.step` processes one image with all
trackers."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.contract import Look
from efftam_ros.core.errors import InputError
from efftam_ros.core.gallery import ALONE, Describe, Others, Rival
from efftam_ros.core.geometry import Box
from efftam_ros.core.motion import CameraAtImage
from efftam_ros.core.policies.default import DefaultPolicy
from efftam_ros.core.reasons import NO_REASON, Reason, ReasonCode
from efftam_ros.core.tracker import MakePolicy, TargetTracker
from efftam_ros.core.types import (
    MISSED,
    CameraMotion,
    Frame,
    Image,
    Motion,
    Prompt,
    Track,
    TrackState,
)

if TYPE_CHECKING:
    from efftam_ros.core.contract import Answers, CameraMotionSource, Pipeline

STEERED, NEXT_FREE = 0, 255
"""Numbers with a special meaning in the place of a target's id: the steered or only target, and a new
target."""

PAST = 512
"""Number of past images for which each target's box is kept: over 8 s at 60 Hz. Late selections need them."""

Prompts = Mapping[int, Prompt]
NO_PROMPTS: Prompts = {}
UNKNOWN_MOTION = CameraMotion(None, "no previous image")


class Step(NamedTuple):
    """One target's answer for an image."""

    target_id: int
    track: Track
    tracker: TargetTracker
    seconds: float = 0.0
    """Time that the answer took, s. Where targets were computed together, each has an equal share of the
    time."""


def id_for(asked: int, ids: Collection[int], steered: int | None, most: int) -> int:
    """Return the id of the target that a selection is for.

    Args:
        asked: The id in the selection. `STEERED` means the steered or only target; without a target it means
            id 0. `NEXT_FREE` means a new target.
        ids: Ids of the present targets, in any order.
        steered: Id of the steered target; None if there is none.
        most: Largest number of targets.

    Raises:
        InputError: ``asked`` is not 0 to 255; there are ``most`` targets already; or ``asked`` is `STEERED`
            while there are several targets and none is steered.
    """
    if not 0 <= asked <= NEXT_FREE:
        raise InputError(ReasonCode.INVALID_TARGET_ID.reason(target=asked))
    if asked == STEERED and ids:
        if steered is None and len(ids) > 1:
            raise InputError(ReasonCode.NONE_STEERED.reason(known=listed(ids)))
        return next(iter(ids)) if steered is None else steered
    if asked == NEXT_FREE:
        # Only the first target gets id 0, because 0 in a command means the steered target.
        asked = next(number for number in range(min(len(ids), 1), NEXT_FREE) if number not in ids)
    if asked not in ids and len(ids) >= most:
        raise InputError(ReasonCode.TOO_MANY_TARGETS.reason(most=most, known=listed(ids)))
    return asked


def listed(ids: Collection[int]) -> str:
    """Return the ids in the form in which errors list them."""
    return f"present targets: {', '.join(map(str, sorted(ids))) or 'none'}"


class TargetSet:
    """Follows up to as many targets as the pipeline has memories. Only `prefetch` is thread-safe.

    The targets' ids are 0 to 254. One target is the steered one, `steered`: the first target that is
    selected, until `steer` names another. After the steered target was removed there is none until the next
    `steer`.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        config: TrackerConfig | None = None,
        camera: CameraMotionSource | None = None,
        is_blank: Callable[[Image, Box], bool] | None = None,
        describe: Describe | None = None,
        make_policy: MakePolicy = DefaultPolicy,
    ) -> None:
        """Create a set without a target.

        Args:
            pipeline: Runs the network.
            config: Settings; default: `TrackerConfig()`.
            camera: Source of the camera's motion; None: the camera is assumed not to move.
            is_blank: See `TargetTracker`.
            describe: See `TargetTracker`.
            make_policy: See `TargetTracker`.
        """
        self._pipeline = pipeline
        self._targets: dict[int, TargetTracker] = {}
        self.ids: list[int] = []
        """Ids of the present targets, in increasing order."""
        self._free = [
            TargetTracker(
                pipeline,
                number,
                config,
                is_blank=is_blank,
                describe=describe,
                make_policy=make_policy,
            )
            for number in reversed(range(pipeline.max_targets))
        ]
        self._camera = None if camera is None else SharedCamera(camera)
        # Trackers, by id, that have answered the last image, and for which `remember` was not called yet.
        self._answered: dict[int, TargetTracker] = {}
        self._images = 0
        self._stepped: dict[int, int] = {}  # by id: number of the target's last image
        # By id: stamp and box of the target in past images, oldest first.
        self._past: dict[int, deque[tuple[int, Box | None]]] = {}
        self.steered: int | None = None
        self.in_work: Collection[int] = ()
        """Ids of the targets that are being processed; after an exception, of the targets that the exception
        concerns."""

    @property
    def max_targets(self) -> int:
        return len(self._free) + len(self._targets)

    @property
    def config(self) -> TrackerConfig:
        return next(self._trackers).config

    @property
    def _trackers(self) -> Iterator[TargetTracker]:
        yield from self._targets.values()
        yield from self._free

    def tracker(self, target_id: int) -> TargetTracker:
        """Return the tracker of a target. Raises InputError when there is no such target."""
        found = self._targets.get(target_id)
        if found is None:
            raise InputError(ReasonCode.NO_SUCH_TARGET.reason(target=target_id, known=listed(self._targets)))
        return found

    def id_for(self, asked: int) -> int:
        """Return the id of the target that a selection is for; see the function `id_for`."""
        return id_for(asked, self._targets, self.steered, self.max_targets)

    def steer(self, target_id: int) -> None:
        """Make this target the steered one. Raises InputError when there is no such target."""
        self.tracker(target_id)
        self.steered = target_id

    def remove(self, target_id: int) -> None:
        """Forget a target. Raises InputError when there is no such target."""
        tracker = self.tracker(target_id)
        tracker.clear()
        self._free.append(self._targets.pop(target_id))
        self.ids = sorted(self._targets)
        self._answered.pop(target_id, None)
        if self._camera is not None:
            self._camera.forget(target_id)
        if self.steered == target_id:
            self.steered = None

    def clear(self) -> None:
        """Forget all targets."""
        for target_id in self.ids:
            self.remove(target_id)

    def reconfigure(self, config: TrackerConfig) -> None:
        """Change the settings of all trackers; see `TargetTracker.reconfigure`."""
        for tracker in self._trackers:
            tracker.reconfigure(config)

    def propose(self, frame: Frame, prompt: Prompt) -> Box | None:
        """Return the box that the network gives for a prompt, see `TargetTracker.propose`. Uses a memory that
        no target occupies, if there is one."""
        self.remember()
        return (self._free or [*self._targets.values()])[-1].propose(frame, prompt)

    def prefetch(self, image: Image) -> None:
        """Announce the image object that will probably be processed next. May be called from any thread."""
        if self._targets:
            if self._camera is not None:
                self._camera.source.prefetch(image)
            self._pipeline.prefetch(image)

    def step(
        self,
        frame: Frame,
        prompts: Prompts = NO_PROMPTS,
        limit: int | None = None,
        ids: Collection[int] | None = None,
        publish: Callable[[Step], object] = lambda step: None,
    ) -> list[Step]:
        """Process one image, and return the answers for all targets. Without a target there is one answer,
        with id 0 and the state IDLE.

        Once the answers are published, the caller calls `remember`, which computes what later images need of
        this one. Otherwise the next call of `step` does it.

        Args:
            frame: The image and its stamp. A bad image raises nothing: the Tracks state the reason.
            prompts: By id, as `id_for` returns it: the prompt that selects this target, or replaces it.
            limit: Largest number of targets without a prompt that are processed in this image: the steered
                one, and the others in turn; None: all.
            ids: The targets without a prompt that are processed, such as one that catches up; None: all.
            publish: Called with each answer as soon as it is computed: first the steered target's, then the
                others' in order of their ids. It may read the target's mask.

        Raises:
            InputError: A prompt can't be used. Its target is unchanged, and all others have been processed.
        """
        work = self._begin(frame, self._turn(prompts, limit, ids), prompts)
        steered, others = work.turn[:1], work.turn[1:]
        for group in [[one] for one in work.turn] if prompts else [steered, others]:
            if prompts:
                # The network keeps the result of only one prompt, so this result is stored before the next
                # prompt.
                self.remember()
            begin_s, looks = time.perf_counter(), dict[int, Look]()
            for target_id in group:
                if target_id not in prompts and target_id not in work.refused:
                    looks[target_id] = self._predict(work, target_id)
            self.in_work = list(looks)
            answers = self._pipeline.look(frame.image, list(looks.values())) if looks else None
            shared_s = (time.perf_counter() - begin_s) / max(1, len(looks))
            for target_id in group:
                self.in_work, begin_s = [target_id], time.perf_counter()
                try:
                    track = self._decide(work, target_id, answers, prompts.get(target_id))
                except InputError as refusal:
                    work.refusals.append(refusal)
                    continue
                seconds = time.perf_counter() - begin_s + shared_s * (target_id in looks)
                work.steps.append(Step(target_id, track, self._targets[target_id], seconds))
                publish(work.steps[-1])
        if work.refusals:
            raise work.refusals[0]
        if not work.turn:
            idle = Track(frame.stamp_ns, TrackState.IDLE, image_size=(frame.image.width, frame.image.height))
            work.steps.append(Step(0, idle, self._free[-1]))
            publish(work.steps[-1])
        return work.steps

    def remember(self) -> None:
        """Compute what later images need of the last image, for all targets that were answered.

        These are the network's memory, the image by which the place of a lost target is recognised, and the
        targets' looks.
        """
        answered, self._answered = self._answered, {}
        if not answered:
            return
        self.in_work = list(answered)
        choices = [tracker.remembered for tracker in answered.values()]
        self._pipeline.remember([choice for choice in choices if choice is not None])
        for target_id, tracker in answered.items():
            self.in_work = [target_id]
            tracker.learn()

    def _begin(self, frame: Frame, turn: Sequence[int], prompts: Prompts) -> _ImageInWork:
        """Finish the last image, and check whether this one can be used."""
        self.remember()
        self._images += 1
        refusal, refused = NO_REASON, {}
        try:
            self._pipeline.check(frame.image)
        except InputError as error:
            refusal = Reason.of(error, ReasonCode.IMAGE_REFUSED)
        for target_id in turn:
            if target_id in prompts:
                continue
            if refusal:
                refused[target_id] = refusal
            elif self._targets[target_id].stamp_ns == frame.stamp_ns:
                refused[target_id] = ReasonCode.SAME_STAMP.reason(stamp_ns=frame.stamp_ns)
        expected = {}
        if len(self._targets) > 1:  # the predictions are only needed to compare targets with each other
            expected = {one: tracker.motion_at(frame.stamp_ns) for one, tracker in self._targets.items()}
        windows = self._shares(turn) if len(turn) > 1 else {}
        return _ImageInWork(frame, turn, refusal, refused, windows, expected)

    def _predict(self, work: _ImageInWork, target_id: int) -> Look:
        """Predict one target in the image, and return the request to the network."""
        self.in_work, tracker = [target_id], self._targets[target_id]
        if len(self._targets) == 1:
            work.moving = tracker.moving
        elif work.moving is None:
            work.moving = [*self._others(target_id, work).boxes, *tracker.moving]
        camera = None if self._camera is None else self._camera.at(target_id, work.frame, work.moving)
        return tracker.predict(work.frame, camera, work.windows.get(target_id))

    def _decide(
        self, work: _ImageInWork, target_id: int, answers: Answers | None, prompt: Prompt | None
    ) -> Track:
        """Decide where one target is in the image, and return its Track.

        ``answers``: the network's answers; None where the network was not called, because there is a prompt,
        or because no target can use the image. Raises InputError for a prompt that can't be used.
        """
        if target_id in work.refused:
            return self._targets[target_id].refused(work.frame, work.refused[target_id])
        others = self._others(target_id, work) if self._targets.keys() - {target_id} else ALONE
        if answers is not None:
            track = self._targets[target_id].decide(answers, others)
        elif work.refusal or prompt is None:
            raise InputError(work.refusal)
        else:
            track = self._select(work.frame, target_id, prompt, others)
        work.expected.pop(target_id, None)
        self._stepped[target_id] = self._images
        self._past[target_id].append((work.frame.stamp_ns, track.box))
        self._answered[target_id] = self._targets[target_id]
        return track

    def _select(self, frame: Frame, target_id: int, prompt: Prompt, others: Others) -> Track:
        """Select a new target, or another object for a present target. Raises InputError for a prompt that
        can't be used."""
        if target_id not in self._targets:
            self.id_for(target_id)
            self._targets[target_id] = self._free.pop()
            self.ids = sorted(self._targets)
            self._past[target_id] = deque(maxlen=PAST)
        tracker, shared = self._targets[target_id], self._camera
        camera = None if shared is None else shared.before_selection(target_id, frame, others.boxes)
        try:
            track = tracker.select(frame, prompt, others, camera)
        except InputError:
            if tracker.state is TrackState.IDLE:
                self.remove(target_id)
            raise
        if shared is not None and camera is not None:
            shared.select(target_id, frame, camera)
        if self.steered is None:
            self.steered = target_id
        return track

    def _others(self, target_id: int, work: _ImageInWork) -> Others:
        """Return the other targets with their boxes in this image: measured ones, or else predicted ones."""
        rivals, stamp_ns = [], work.frame.stamp_ns
        for other, tracker in self._targets.items():
            if other == target_id:
                continue
            motion = work.expected[other] if other in work.expected else tracker.motion_at(stamp_ns)
            box = self._box_before(other, stamp_ns) if motion is None else motion.box
            if box is not None:
                rivals.append(Rival(other, box, tracker.gallery))
        return Others(rivals, [rival.box for rival in rivals])

    def _box_before(self, target_id: int, stamp_ns: int) -> Box | None:
        """Return a target's box, px, in an earlier image, such as that of a late selection; None where the
        target had no box then, or where its boxes from that time are no longer stored."""
        past = reversed(self._past[target_id])
        return next((box for stamp, box in past if stamp <= stamp_ns), None)

    def _shares(self, turn: Sequence[int]) -> dict[int, int]:
        """Return, by id, how many windows of this image each missed target may search. Each followed target
        takes one of the windows that an image may have."""
        missed = [one for one in turn if one in self._targets and self._targets[one].state in MISSED]
        if not missed:
            return {}
        left = max(self.config.search_windows - (len(turn) - len(missed)), len(missed))
        share, rest = divmod(left, len(missed))
        # The target that gets one window more than the others changes from image to image.
        first = self._images % len(missed)
        return {one: share + ((n - first) % len(missed) < rest) for n, one in enumerate(missed)}

    def _turn(self, prompts: Prompts, limit: int | None, among: Collection[int] | None) -> list[int]:
        """Return the ids of the targets to process in an image, in order. For the arguments see `step`."""
        ids = [one for one in self._targets if (among is None or one in among) and one not in prompts]
        if limit is not None and limit < len(ids):
            ids.sort(key=lambda one: (one != self.steered, self._stepped.get(one, 0), one))
            ids = ids[:limit]
        turn = sorted({*ids, *prompts})
        if self.steered in turn:
            turn.remove(self.steered)
            turn.insert(0, self.steered)
        return turn


@dataclass
class _ImageInWork:
    """An image while it is processed, with the intermediate results of `TargetSet.step`.

    Attributes:
        frame: The image and its stamp.
        turn: Ids of the targets to process, the steered one first.
        refusal: Why no target can use the image; empty if it can be used.
        refused: By id, for targets without a prompt: why this target can't use the image.
        windows: By id, for missed targets: how many windows of the image may be searched.
        expected: By id, for targets without an answer so far: the predicted motion; None where there is none.
        moving: Boxes of moving objects in the previous image, px; None until a target needs them.
        steps: The answers so far.
        refusals: The errors of prompts that can't be used.
    """

    frame: Frame
    turn: Sequence[int]
    refusal: Reason
    refused: Mapping[int, Reason]
    windows: Mapping[int, int]
    expected: dict[int, Motion | None]
    moving: Sequence[Box] | None = None
    steps: list[Step] = field(default_factory=list)
    refusals: list[InputError] = field(default_factory=list)


class SharedCamera:
    """Estimates the camera's motion once per image for all targets. Each target gets the motion since its own
    last image, because not every target is processed in every image.

    A late selection names an older image than the other targets' last one. Its target catches up through the
    images since then, and has a source of its own until it has reached the others' last image.
    """

    def __init__(self, source: CameraMotionSource) -> None:
        self.source = source
        self._stamp_ns: int | None = None  # stamp of the last image; None before the first
        # By id: the camera's motion since the target's last image; None if there was no image since.
        self._since: dict[int, CameraMotion | None] = {}
        self._own: dict[int, CameraMotionSource] = {}  # by id: the source of a target that catches up

    def at(self, target_id: int, frame: Frame, moving: Sequence[Box]) -> CameraAtImage:
        """Return the camera's motion up to this image for one target. ``moving``: boxes of moving objects in
        the previous image, px, which are not used for the estimate."""
        own = self._own.get(target_id)
        if own is None:
            self._advance(frame, moving)
            motion, self._since[target_id] = self._since.get(target_id), None
            return CameraAtImage(motion or UNKNOWN_MOTION, self.source)
        motion = own.estimate(frame.image, frame.stamp_ns, moving)
        if self._is_behind(frame):
            return CameraAtImage(motion, own)
        self._advance(frame, moving)
        self._join(target_id)
        return CameraAtImage(motion, self.source)

    def before_selection(self, target_id: int, frame: Frame, moving: Sequence[Box]) -> CameraAtImage:
        """Return the camera at an image on which a target is to be selected. If the selection succeeds, the
        caller calls `select`. ``moving``: boxes of moving objects, px."""
        others = self._since.keys() - {target_id}
        source = self.source
        if not self._since:
            self._stamp_ns = None
            source.reset()
        if self._since and (not others or self._is_behind(frame)):
            source = source.another()
            source.estimate(frame.image, frame.stamp_ns, moving)
        else:
            self._advance(frame, moving)
        return CameraAtImage(UNKNOWN_MOTION, source)

    def select(self, target_id: int, frame: Frame, camera: CameraAtImage) -> None:
        """Note that the target was selected on this image. ``camera``: what `before_selection` returned."""
        is_alone = not self._since.keys() - {target_id}
        self._join(target_id)
        if is_alone:
            self.source, self._stamp_ns = camera.source, frame.stamp_ns
        elif camera.source is not self.source:
            self._own[target_id] = camera.source

    def forget(self, target_id: int) -> None:
        """Forget a target. An unknown id changes nothing."""
        self._since.pop(target_id, None)
        self._own.pop(target_id, None)

    def _join(self, target_id: int) -> None:
        """Note that the target has reached the last image, and uses the common source from now on."""
        self._own.pop(target_id, None)
        self._since[target_id] = None

    def _is_behind(self, frame: Frame) -> bool:
        return self._stamp_ns is not None and frame.stamp_ns < self._stamp_ns

    def _advance(self, frame: Frame, moving: Sequence[Box]) -> None:
        """Estimate the camera's motion to this image, if that was not done before."""
        if frame.stamp_ns == self._stamp_ns:
            return
        self._stamp_ns = frame.stamp_ns
        motion = self.source.estimate(frame.image, frame.stamp_ns, moving)
        for target_id, before in self._since.items():
            self._since[target_id] = motion if before is None else _chained(before, motion)


def _chained(before: CameraMotion, motion: CameraMotion) -> CameraMotion:
    """Return the motion that two consecutive motions make together; unknown if one of them is unknown."""
    if before.matrix is None:
        return before
    if motion.matrix is None:
        return motion
    return CameraMotion(motion.matrix @ before.matrix, motion.reason)
