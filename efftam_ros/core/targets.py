"""Several targets at once, a tracker each; one of them is steered by. `TargetSet.step` is an image's way."""

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
    from efftam_ros.core.contract import Answers, CameraMotionSource, Pipeline, PointSource

STEERED, NEXT_FREE = 0, 255
"""Numbers that stand for an id in a command: the steered (or only) target, and a new one."""

PAST = 512
"""Images of which it is known where each target was: over 8 s at 60 Hz, in which late selections come."""

Prompts = Mapping[int, Prompt]
NO_PROMPTS: Prompts = {}
UNKNOWN_MOTION = CameraMotion(None, "no previous image")


class Step(NamedTuple):
    """One target's answer for an image."""

    target_id: int
    track: Track
    tracker: TargetTracker
    seconds: float = 0.0
    """That the answer took, s, with its share of what several targets were computed together in."""


def id_for(asked: int, ids: Collection[int], steered: int | None, most: int) -> int:
    """Return the id that a selection asks for: `STEERED` is the steered or only target, else 0; `NEXT_FREE` a
    new one.

    ``ids``: of the targets, in any order; ``steered``: the one that is steered by; ``most``: how many there
    may be. Raises InputError: not 0 to 255, too many targets, or several and none is steered.
    """
    if not 0 <= asked <= NEXT_FREE:
        raise InputError(ReasonCode.INVALID_TARGET_ID.reason(target=asked))
    if asked == STEERED and ids:
        if steered is None and len(ids) > 1:
            raise InputError(ReasonCode.NONE_STEERED.reason(known=listed(ids)))
        return next(iter(ids)) if steered is None else steered
    if asked == NEXT_FREE:
        # 0 is given to the first alone: asked for, it is the steered one.
        asked = next(number for number in range(min(len(ids), 1), NEXT_FREE) if number not in ids)
    if asked not in ids and len(ids) >= most:
        raise InputError(ReasonCode.TOO_MANY_TARGETS.reason(most=most, known=listed(ids)))
    return asked


def listed(ids: Collection[int]) -> str:
    """Return the ids as errors name them."""
    return f"targets: {', '.join(map(str, sorted(ids))) or 'none'}"


class TargetSet:
    """Follows up to as many targets as the pipeline has memories. Not thread-safe, except for `prefetch`.

    Ids are 0 to 254. `steered` is the target that is steered by: the first one, until `steer` names another;
    once it is removed there is none until then.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        config: TrackerConfig | None = None,
        camera: CameraMotionSource | None = None,
        points: Callable[[], PointSource] | None = None,
        is_blank: Callable[[Image, Box], bool] | None = None,
        describe: Describe | None = None,
        make_policy: MakePolicy = DefaultPolicy,
    ) -> None:
        """Create a set without a target.

        Args:
            pipeline: Runs the network.
            config: Settings; default: `TrackerConfig()`.
            camera: Source of the camera's motion; None: the camera is assumed not to move.
            points: Makes what follows points on one target; None: not used.
            is_blank: See `TargetTracker`.
            describe: See `TargetTracker`.
            make_policy: See `TargetTracker`.
        """
        self._pipeline = pipeline
        self._targets: dict[int, TargetTracker] = {}
        self.ids: list[int] = []
        """Of the targets, in order."""
        self._free = [
            TargetTracker(
                pipeline,
                number,
                config,
                points=None if points is None else points(),
                is_blank=is_blank,
                describe=describe,
                make_policy=make_policy,
            )
            for number in reversed(range(pipeline.max_targets))
        ]
        self._camera = None if camera is None else SharedCamera(camera)
        self._answered: dict[int, TargetTracker] = {}  # in the last image, with `remember` left to do
        self._images = 0
        self._stepped: dict[int, int] = {}  # number of the last image in which each had its turn
        self._past: dict[int, deque[tuple[int, Box | None]]] = {}  # stamps and boxes of each, oldest first
        self.steered: int | None = None
        self.in_work: Collection[int] = ()
        """The targets that are processed; after an exception, those at fault."""

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
        """Return the tracker of a target. Raises InputError when there is none."""
        found = self._targets.get(target_id)
        if found is None:
            raise InputError(ReasonCode.NO_SUCH_TARGET.reason(target=target_id, known=listed(self._targets)))
        return found

    def id_for(self, asked: int) -> int:
        """See `id_for`."""
        return id_for(asked, self._targets, self.steered, self.max_targets)

    def steer(self, target_id: int) -> None:
        """Steer by this target from now on. Raises InputError when there is none."""
        self.tracker(target_id)
        self.steered = target_id

    def remove(self, target_id: int) -> None:
        """Forget a target. Raises InputError when there is none."""
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
        """Call `TargetTracker.reconfigure` for all targets."""
        for tracker in self._trackers:
            tracker.reconfigure(config)

    def propose(self, frame: Frame, prompt: Prompt) -> Box | None:
        """Call `TargetTracker.propose` on a memory that no target has, where there is one."""
        self.remember()
        return (self._free or [*self._targets.values()])[-1].propose(frame, prompt)

    def prefetch(self, image: Image) -> None:
        """Announce that this image object will probably be processed next; from any thread."""
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
        """Process one image and return all answers; without a target the one answer has id 0 and is IDLE.

        What later images need of this one is left to `remember`, which the caller calls when the answers have
        gone out; else it is done with the next image.

        Args:
            frame: The image and its stamp. A bad one does not raise: the Tracks have the reason.
            prompts: By id (`id_for`), a prompt that selects or replaces this target.
            limit: Most targets that are processed in this image, besides those with a prompt: the steered
                one, and the others in turn; None: all.
            ids: The targets to process besides those with a prompt, such as one that catches up; None: all.
            publish: Gets each answer as soon as it is there, the steered target's first, then in order of id.
                It can read the target's mask.

        Raises:
            InputError: A prompt can't be used; its target is as before, the others have been processed.
        """
        work = self._begin(frame, self._turn(prompts, limit, ids), prompts)
        steered, others = work.turn[:1], work.turn[1:]
        for group in [[one] for one in work.turn] if prompts else [steered, others]:
            if prompts:
                self.remember()  # the network has one place for what a prompt leaves to remember
            begin_s, looks = time.perf_counter(), dict[int, Look]()
            for target_id in group:
                if target_id not in prompts and target_id not in work.refused:
                    looks[target_id] = self._predict(work, target_id)
            self.in_work = list(looks)
            answers = self._pipeline.look(frame.image, list(looks.values())) if looks else None
            for target_id in looks:  # the network may look meanwhile
                self._targets[target_id].follow_points()
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
        """Compute what only later images need of the last one, for all targets that were answered: the
        network's memory, the points to follow, the place to recognise, how the targets look."""
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
        if len(self._targets) > 1:  # else no other target asks
            expected = {one: tracker.motion_at(frame.stamp_ns) for one, tracker in self._targets.items()}
        windows = self._shares(turn) if len(turn) > 1 else {}
        return _ImageInWork(frame, turn, refusal, refused, windows, expected)

    def _predict(self, work: _ImageInWork, target_id: int) -> Look:
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
        """Return the Track of a target that has its turn. Raises InputError for a prompt that can't be
        used."""
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
        """Return where the other targets are in this image: seen, or expected."""
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
        """Return where a target was in an image before its last one, such as that of a late selection."""
        past = reversed(self._past[target_id])
        return next((box for stamp, box in past if stamp <= stamp_ns), None)

    def _shares(self, turn: Sequence[int]) -> dict[int, int]:
        """Return how many windows each missed target may search in this image: the followed ones need one
        each."""
        missed = [one for one in turn if one in self._targets and self._targets[one].state in MISSED]
        if not missed:
            return {}
        left = max(self.config.search_windows - (len(turn) - len(missed)), len(missed))
        share, rest = divmod(left, len(missed))
        first = self._images % len(missed)  # the rest goes to another one in each image
        return {one: share + ((n - first) % len(missed) < rest) for n, one in enumerate(missed)}

    def _turn(self, prompts: Prompts, limit: int | None, among: Collection[int] | None) -> list[int]:
        """Return the targets to process in an image, in order."""
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
    """An image on its way through the targets.

    Attributes:
        frame: The image and its stamp.
        turn: The targets that it is processed for, the steered one first.
        refusal: Why no target can use it.
        refused: By target without a prompt, why it can't use the image.
        windows: By missed target, how many windows it may search.
        expected: By target, where those are expected that have no answer yet; None: nowhere.
        moving: What moves by itself, px of the image before; None: not asked for yet.
        steps: The answers.
        refusals: Of prompts that can't be used.
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
    """Estimates the camera's motion once for each image, and gives each target the motion since its own
    last image, because not every target has its turn in every image.

    A target that was selected on an earlier image than the others' last one catches up through images of its
    own, with a source of its own, until it is level with them.
    """

    def __init__(self, source: CameraMotionSource) -> None:
        self.source = source
        self._stamp_ns: int | None = None  # of the last image, None before the first
        self._since: dict[int, CameraMotion | None] = {}  # by target, since its last turn
        self._own: dict[int, CameraMotionSource] = {}  # of targets that catch up

    def at(self, target_id: int, frame: Frame, moving: Sequence[Box]) -> CameraAtImage:
        """Return the camera for a target that has its turn in this image. ``moving``: boxes in the image
        before, px, which the estimate leaves out."""
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
        """Return the camera for a target that may be selected on this image; if it is, `select` follows. The
        other targets' cameras do not change."""
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
        """Note that the target was selected on this image, with the camera of `before_selection`."""
        is_alone = not self._since.keys() - {target_id}
        self._join(target_id)
        if is_alone:
            self.source, self._stamp_ns = camera.source, frame.stamp_ns
        elif camera.source is not self.source:
            self._own[target_id] = camera.source

    def forget(self, target_id: int) -> None:
        self._since.pop(target_id, None)
        self._own.pop(target_id, None)

    def _join(self, target_id: int) -> None:
        """Note that the target has caught up with the camera."""
        self._own.pop(target_id, None)
        self._since[target_id] = None

    def _is_behind(self, frame: Frame) -> bool:
        return self._stamp_ns is not None and frame.stamp_ns < self._stamp_ns

    def _advance(self, frame: Frame, moving: Sequence[Box]) -> None:
        """Estimate the motion to this image, unless it was."""
        if frame.stamp_ns == self._stamp_ns:
            return
        self._stamp_ns = frame.stamp_ns
        motion = self.source.estimate(frame.image, frame.stamp_ns, moving)
        for target_id, before in self._since.items():
            self._since[target_id] = motion if before is None else _chained(before, motion)


def _chained(before: CameraMotion, motion: CameraMotion) -> CameraMotion:
    """Two motions, one after the other; not known where one is not."""
    if before.matrix is None:
        return before
    if motion.matrix is None:
        return motion
    return CameraMotion(motion.matrix @ before.matrix, motion.reason)
