"""Several targets at once: a tracker each, on the lanes of one pipeline; one of them is steered by."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from concurrent.futures.thread import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.errors import InputError
from efftam_ros.core.gallery import Describe, Others, Rival
from efftam_ros.core.geometry import Box
from efftam_ros.core.motion import CameraAtImage, SharedCamera
from efftam_ros.core.tracker import TargetTracker
from efftam_ros.core.types import MISSED, Frame, Image, Motion, Prompt, Track, TrackState

if TYPE_CHECKING:
    from efftam_ros.core.contract import CameraMotionSource, Pipeline, PointSource

STEERED, NEXT_FREE = 0, 255
"""What is asked for in place of an id: the target that is steered by (the only one), and a new one."""

PAST = 512
"""Images of which it is known where each target was: over 8 s at 60 Hz, in which late selections come."""

Prompts = Mapping[int, tuple[Prompt, bool]]
NO_PROMPTS: Prompts = {}


class Step(NamedTuple):
    """One target's answer for an image."""

    target_id: int
    track: Track
    tracker: TargetTracker
    seconds: float = 0.0
    """Of its turn, up to the answer, s: those of an image's targets add up."""


def id_for(asked: int, ids: Collection[int], steered: int | None, most: int) -> int:
    """The id that a selection asks for: `STEERED` is the steered or only target, else 0; `NEXT_FREE` a new
    one.

    ``ids``: of the targets, in any order; ``steered``: the one that is steered by; ``most``: how many there
    may be. Raises InputError: not 0 to 255, too many targets, or several and none is steered.
    """
    if not 0 <= asked <= NEXT_FREE:
        raise InputError(f"target_id is {asked}; give 0 to 254, or {NEXT_FREE} for the next free one")
    if asked == STEERED and ids:
        if steered is None and len(ids) > 1:
            raise InputError(f"no target is steered by, so 0 names none; {listed(ids)}")
        return next(iter(ids)) if steered is None else steered
    if asked == NEXT_FREE:
        # 0 is given to the first alone: asked for, it is the steered one.
        asked = next(number for number in range(min(len(ids), 1), NEXT_FREE) if number not in ids)
    if asked not in ids and len(ids) >= most:
        raise InputError(f"{most} targets are followed already (max_targets); remove one: {listed(ids)}")
    return asked


def listed(ids: Collection[int]) -> str:
    """The ids as errors name them."""
    return f"targets: {', '.join(map(str, sorted(ids))) or 'none'}"


class TargetSet:
    """Follows up to as many targets as the pipeline has lanes. Not thread-safe, except for `prefetch`.

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
    ) -> None:
        """Without a target. ``points`` makes the source for one target; the others as in `TargetTracker`."""
        self._targets: dict[int, TargetTracker] = {}
        self.ids: list[int] = []
        """Of the targets, in order."""
        self._free = [
            TargetTracker(
                pipeline.lane(index),
                config,
                points=None if points is None else points(),
                is_blank=is_blank,
                describe=describe,
            )
            for index in reversed(range(pipeline.lanes))
        ]
        searches = self._free[-1].searches
        self._camera = SharedCamera(camera) if camera is not None and searches else None
        # Several threads where lanes work side by side, started when there are targets for them.
        self._pool = (
            ThreadPoolExecutor(pipeline.side_by_side, "target") if pipeline.side_by_side > 1 else None
        )
        self.prefetches = pipeline.is_asynchronous
        """Whether `prefetch` is of use: with a network on the CPU there is no time for anything else."""
        self._launches = pipeline.is_asynchronous and pipeline.lanes > 1
        self._begun: dict[int, Future[bool]] = {}  # steps that have begun before their turn
        self._last: TargetTracker | None = None  # answered last, with something left to compute
        self._images = 0
        self._stepped: dict[int, int] = {}  # number of the last image in which each had its turn
        self._past: dict[int, deque[tuple[int, Box | None]]] = {}  # stamps and boxes of each, oldest first
        self.steered: int | None = None
        self.in_work: int | None = None
        """The target that is processed; after an exception from `step`, the one at fault."""

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
        """The tracker of a target. Raises InputError when there is none."""
        found = self._targets.get(target_id)
        if found is None:
            raise InputError(f"there is no target {target_id}; {listed(self._targets)}")
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
        self._begun.pop(target_id, None)
        if self._camera is not None:
            self._camera.forget(target_id)
        if self.steered == target_id:
            self.steered = None

    def clear(self) -> None:
        """Forget all targets."""
        for target_id in self.ids:
            self.remove(target_id)

    def reconfigure(self, config: TrackerConfig) -> None:
        """As `TargetTracker.reconfigure`, for all targets."""
        for tracker in self._trackers:
            tracker.reconfigure(config)

    def propose(self, frame: Frame, prompt: Prompt) -> Box | None:
        """As `TargetTracker.propose`; on a lane that no target has, where there is one."""
        self.commit()
        return (self._free or [*self._targets.values()])[-1].propose(frame, prompt)

    def prefetch(self, image: Image) -> None:
        """As `TargetTracker.prefetch`."""
        if not (self.prefetches and self._targets):
            return
        if self._camera is not None:
            self._camera.source.prefetch(image)
        for tracker in list(self._targets.values())[:1]:  # all of them use the same image
            tracker.prefetch(image)

    def step(
        self,
        frame: Frame,
        prompts: Prompts = NO_PROMPTS,
        limit: int | None = None,
        ids: Collection[int] | None = None,
        answered: Callable[[Step], object] = lambda step: None,
    ) -> list[Step]:
        """Process one image and return all answers; without a target the one answer has id 0 and is IDLE.

        What later frames need of a target (`TargetTracker.commit`) is computed before the next target's
        answer, for the last one by `commit` or with the next image.

        Args:
            frame: The image and its stamp.
            prompts: By id (`id_for`), a prompt that selects or replaces this target, and whether it refines
                it; see `TargetTracker.select`.
            limit: Most targets that are processed in this image, besides those with a prompt: the steered
                one, and the others in turn; None: all.
            ids: The targets to process besides those with a prompt, such as one that catches up; None: all.
            answered: Gets each answer as soon as it is there, the steered target's first, then in order of
                id. It can read the target's mask; the next answer is computed afterwards.

        Raises:
            InputError: A prompt can't be used; its target is as before, the others have been processed.
        """
        self.commit()
        self._images += 1
        if not self._targets and not prompts:
            answered(idle := Step(0, self._free[-1].step(frame), self._free[-1]))
            return [idle]
        turn = self._turn(prompts, limit, ids)
        image = _ImageInWork(frame, self._shares(turn), self._predictions(frame.stamp_ns))
        steps, refusal = list[Step](), None
        try:
            for target_id in turn:
                self.commit()
                self.in_work, begin_s = target_id, time.perf_counter()
                try:
                    track = self._answer(image, target_id, prompts)
                except InputError as error:
                    refusal = refusal or error
                    if target_id in self._targets and self._targets[target_id].state is TrackState.IDLE:
                        self.remove(target_id)
                    continue
                step = Step(target_id, track, self._targets[target_id], time.perf_counter() - begin_s)
                steps.append(step)
                self._last = step.tracker
                answered(step)
                if target_id == turn[0] and not prompts:
                    self._begin_ahead(image, turn[1:])
        finally:
            self._end_begun(image)
        if refusal is not None:
            raise refusal
        return steps

    def commit(self) -> None:
        """As `TargetTracker.commit`, for the target that was answered last."""
        last, self._last = self._last, None
        if last is not None:
            last.commit()

    def _answer(self, image: _ImageInWork, target_id: int, prompts: Prompts) -> Track:
        """The Track of a target that has its turn. Raises InputError for a prompt that can't be used."""
        frame, others = image.frame, self._others(target_id, image)
        if target_id in prompts:
            track = self._select(target_id, frame, *prompts[target_id], others)
        else:
            tracker = self._targets[target_id]
            if target_id in self._begun:
                self._begun.pop(target_id).result()
            else:
                tracker.begin(frame, self._camera_at(target_id, frame, [*others.boxes, *tracker.moving]))
            track = tracker.finish(others)
        image.expected.pop(target_id, None)
        self._stepped[target_id] = self._images
        self._past[target_id].append((frame.stamp_ns, track.box))
        return track

    def _select(self, target_id: int, frame: Frame, prompt: Prompt, refine: bool, others: Others) -> Track:
        if target_id not in self._targets:
            self.id_for(target_id)
            self._targets[target_id] = self._free.pop()
            self.ids = sorted(self._targets)
            self._past[target_id] = deque(maxlen=PAST)
        tracker, shared = self._targets[target_id], self._camera
        camera = None if shared is None else shared.before_selection(target_id, frame, others.boxes)
        track = tracker.select(frame, prompt, refine, others, camera)
        if shared is not None and camera is not None:
            shared.select(target_id, frame, camera)
        if self.steered is None:
            self.steered = target_id
        return track

    def _camera_at(self, target_id: int, frame: Frame, moving: Sequence[Box]) -> CameraAtImage | None:
        return None if self._camera is None else self._camera.at(target_id, frame, moving)

    def _begin_ahead(self, image: _ImageInWork, rest: Sequence[int]) -> None:
        """Once the first target is answered, begin the steps of the others before their turn: in threads of
        their own on a CPU, beside the first one's memory update; on a GPU launched one behind the other, up
        to one that is not looked for in the whole image."""
        if len(rest) < 2 or (self._pool is None and not self._launches):
            return
        if self._launches:
            self.commit()  # it needs the features that change now
        for target_id in rest:
            if target_id in self._begun:
                continue  # its error comes first
            tracker = self._targets[target_id]
            camera = self._camera_at(target_id, image.frame, tracker.moving)
            begin = partial(tracker.begin, image.frame, camera, is_batched=self._launches)
            begun = self._begun[target_id] = called(begin) if self._pool is None else self._pool.submit(begin)
            if self._launches and (begun.exception() is not None or not begun.result()):
                break

    def _end_begun(self, image: _ImageInWork) -> None:
        """After an error, end the steps that have begun and had no turn: their answers are dropped. An error
        in one of them is raised in its next turn."""
        wait(self._begun.values())
        for target_id, begun in list(self._begun.items()):
            if begun.exception() is None:
                self.commit()
                del self._begun[target_id]
                self._last = tracker = self._targets[target_id]
                tracker.finish(self._others(target_id, image))

    def _predictions(self, stamp_ns: int) -> dict[int, Motion | None]:
        if len(self._targets) < 2:
            return {}  # no other target asks
        return {target_id: tracker.predict(stamp_ns) for target_id, tracker in self._targets.items()}

    def _others(self, target_id: int, image: _ImageInWork) -> Others:
        """Where the other targets are in this image: seen, or expected."""
        rivals, stamp_ns = [], image.frame.stamp_ns
        for other, tracker in self._targets.items():
            if other == target_id:
                continue
            motion = image.expected[other] if other in image.expected else tracker.predict(stamp_ns)
            box = self._box_before(other, stamp_ns) if motion is None else motion.box
            if box is not None:
                rivals.append(Rival(other, box, tracker.gallery))
        return Others(rivals, image.windows.get(target_id), [rival.box for rival in rivals])

    def _box_before(self, target_id: int, stamp_ns: int) -> Box | None:
        """Where a target was in an image before its last one, such as that of a late selection."""
        past = reversed(self._past[target_id])
        return next((box for stamp, box in past if stamp <= stamp_ns), None)

    def _shares(self, turn: Sequence[int]) -> dict[int, int]:
        """How many windows each missed target may search in this image: the followed ones need one each."""
        if len(turn) < 2:
            return {}
        missed = [one for one in turn if one in self._targets and self._targets[one].state in MISSED]
        if not missed:
            return {}
        left = max(self.config.search_windows - (len(turn) - len(missed)), len(missed))
        share, rest = divmod(left, len(missed))
        first = self._images % len(missed)  # the rest goes to another one in each image
        return {one: share + ((n - first) % len(missed) < rest) for n, one in enumerate(missed)}

    def _turn(self, prompts: Prompts, limit: int | None, among: Collection[int] | None) -> list[int]:
        """The targets to process in an image, in order."""
        ids = [one for one in self._targets if (among is None or one in among) and one not in prompts]
        if limit is not None and limit < len(ids):
            ids.sort(key=lambda one: (one != self.steered, self._stepped.get(one, 0), one))
            ids = ids[:limit]
        return sorted({*ids, *prompts}, key=lambda one: (one != self.steered, one))


@dataclass
class _ImageInWork:
    """``windows``: that missed targets may search in this image, by target; ``expected``: where targets that
    have no answer yet are expected, None where nowhere."""

    frame: Frame
    windows: Mapping[int, int]
    expected: dict[int, Motion | None]


def called(function: Callable[[], bool]) -> Future[bool]:
    """As an executor would call it, in this thread and now."""
    future: Future[bool] = Future()
    try:
        future.set_result(function())
    except Exception as error:
        future.set_exception(error)
    return future
