"""Several targets at once: a tracker each, on the lanes of one pipeline; one of them is steered by."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence, Sized
from concurrent.futures import Future, wait
from concurrent.futures.thread import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_ros.core.identity import Others, Rival
from efftam_ros.core.tracker import Tracker
from efftam_ros.core.types import MISSED, CameraMotion, Frame, Image, Motion, Prompt, Track, TrackState

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
    tracker: Tracker
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
    ) -> None:
        """Without a target. ``points`` makes the source for one target; for the others see `Tracker`."""
        self._targets: dict[int, Tracker] = {}
        shared = None if camera is None else SharedCameraMotion(camera, self._targets)
        self._free = [
            Tracker(
                pipeline.lane(index),
                config,
                None if shared is None else shared.of_target(),
                None if points is None else points(),
                is_blank,
            )
            for index in reversed(range(pipeline.lanes))
        ]
        self._lanes = {tracker: lane for lane, tracker in enumerate(reversed(self._free))}
        # Several threads where lanes work side by side, started when there are targets for them.
        self._pool = (
            ThreadPoolExecutor(pipeline.side_by_side, "target") if pipeline.side_by_side > 1 else None
        )
        self._launches = pipeline.is_asynchronous and pipeline.lanes > 1
        self._looking: dict[int, Future[bool]] = {}  # at an image, before their turn
        self._images = 0
        self._stepped: dict[int, int] = {}  # number of the last image in which each had its turn
        self._past: dict[int, deque[tuple[int, Box | None]]] = {}  # stamps and boxes of each, oldest first
        self.steered: int | None = None
        self.in_work: int | None = None
        """The target that is processed; after an exception from `step`, the one at fault."""

    @property
    def ids(self) -> list[int]:
        """Of the targets, in order."""
        return sorted(self._targets)

    @property
    def max_targets(self) -> int:
        return len(self._free) + len(self._targets)

    @property
    def config(self) -> TrackerConfig:
        return next(self._trackers).config

    @property
    def _trackers(self) -> Iterator[Tracker]:
        yield from self._targets.values()
        yield from self._free

    def tracker(self, target_id: int) -> Tracker:
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
        for known in (self._stepped, self._past):
            known.pop(target_id, None)
        self._looking.pop(target_id, None)
        if self.steered == target_id:
            self.steered = None

    def clear(self) -> None:
        """Forget all targets."""
        for target_id in self.ids:
            self.remove(target_id)

    def reconfigure(self, config: TrackerConfig) -> None:
        """As `Tracker.reconfigure`, for all targets."""
        for tracker in self._trackers:
            tracker.reconfigure(config)

    def propose(self, frame: Frame, prompt: Prompt) -> Box | None:
        """As `Tracker.propose`; on a lane that no target has, where there is one."""
        return (self._free or [*self._targets.values()])[-1].propose(frame, prompt)

    def prefetch(self, image: Image) -> None:
        """As `Tracker.prefetch`."""
        for tracker in list(self._targets.values())[:1]:  # what it looks at is for all of them
            tracker.prefetch(image)

    def step(
        self,
        frame: Frame,
        prompts: Prompts = NO_PROMPTS,
        limit: int | None = None,
        only: Collection[int] | None = None,
    ) -> Generator[Step]:
        """Process one image: yields each target's answer right after its computation, the steered one's
        first, then in order of id; without a target one of id 0 that is IDLE. The targets after the first are
        computed side by side where the pipeline can, or launched together on a GPU where they are looked for
        in the whole image, with the results of one after the other.

        What is only needed later (`Tracker.commit`) is computed when the iterator goes on, and a target's
        mask can be read until then.

        Args:
            frame: The image and its stamp.
            prompts: By id (`id_for`), a prompt that selects or replaces this target, and whether it refines
                it; see `Tracker.step`.
            limit: Most targets that are processed in this image, besides those with a prompt: the steered
                one, and the others in turn; None: all.
            only: Ids of the targets to process, such as one that catches up; None: all.

        Raises:
            InputError: A prompt can't be used. It is raised at the end, when the others have been processed;
                its target is as before.
        """
        refusal: InputError | None = None
        self._images += 1
        if not self._targets and not prompts:
            yield Step(0, self._free[-1].step(frame), self._free[-1])
        turn = self._turn(prompts, limit, only)
        windows = self._shares(turn)
        predicted: dict[int, Motion | None] = {}
        try:
            for target_id in turn:
                if target_id in turn[1:2] and not prompts and self._pool is None:
                    predicted = self._look(frame, turn[1:])
                tracker = self._targets.get(target_id)
                prompt, refine = prompts.get(target_id, (None, False))
                self.in_work, begin_s = target_id, time.perf_counter()
                try:
                    tracker = tracker or self._added(target_id)
                    if target_id in self._looking:
                        self._looking.pop(target_id).result()
                    tracker.others = self._others(target_id, frame.stamp_ns, windows, predicted)
                    track = tracker.step(frame, prompt, refine)
                except InputError as error:
                    refusal = refusal or error
                    if tracker is not None and tracker.state is TrackState.IDLE:
                        self.remove(target_id)
                    continue
                predicted.pop(target_id, None)
                self._stepped[target_id] = self._images
                self._past[target_id].append((frame.stamp_ns, track.box))
                if self.steered is None and prompt is not None:
                    self.steered = target_id
                try:
                    yield Step(target_id, track, tracker, time.perf_counter() - begin_s)
                    if target_id == turn[0] and not prompts and self._pool is not None:
                        predicted = self._look(frame, turn[1:])  # beside the first one's `commit`
                finally:
                    tracker.commit()
        finally:
            wait(self._looking.values())
            if self._launches:
                for target_id in self._looking:
                    self._targets[target_id].end_look()
                self._looking.clear()
        if refusal is not None:
            raise refusal

    def _added(self, target_id: int) -> Tracker:
        self.id_for(target_id)
        self._targets[target_id] = self._free.pop()
        self._past[target_id] = deque(maxlen=PAST)
        return self._targets[target_id]

    def _look(self, frame: Frame, turn: Sequence[int]) -> dict[int, Motion | None]:
        """Have targets look at an image side by side, before their turn, where that is worth it; returns
        where each was expected before."""
        if len(turn) < 2 or (self._pool is None and not self._launches):
            return {}
        predicted = {one: self._targets[one].predict(frame.stamp_ns) for one in turn}
        for one in turn:
            look = self._targets[one].look
            if self._pool is None:
                self._looking[one] = begun = called(look, frame)
                if begun.exception() is not None or not begun.result():
                    break  # the next ones come after it
            elif one not in self._looking:
                self._looking[one] = self._pool.submit(look, frame)
        return predicted

    def _others(
        self,
        target_id: int,
        stamp_ns: int,
        windows: Mapping[int, int],
        predicted: Mapping[int, Motion | None],
    ) -> Others:
        """Where the other targets are in this image: seen, or ``predicted``. ``windows``: that missed targets
        may search."""
        rivals = []
        for other, tracker in self._targets.items():
            if other == target_id:
                continue
            motion = predicted[other] if other in predicted else tracker.predict(stamp_ns)
            box = self._box_before(other, stamp_ns) if motion is None else motion.box
            if box is not None:
                rivals.append(Rival(other, box, self._lanes[tracker], tracker.templates))
        return Others(rivals, windows.get(target_id), [rival.box for rival in rivals])

    def _box_before(self, target_id: int, stamp_ns: int) -> Box | None:
        """Where a target was in an image before its last one, such as that of a late selection."""
        past = self._past[target_id]
        if not past or stamp_ns >= past[-1][0]:
            return None
        return next((box for stamp, box in reversed(past) if stamp <= stamp_ns), None)

    def _shares(self, turn: Sequence[int]) -> dict[int, int]:
        """The windows that each missed target may search in this image: those that the followed ones leave,
        which need one each."""
        missed = [one for one in turn if one in self._targets and self._targets[one].state in MISSED]
        if len(turn) < 2 or not missed:
            return {}
        left = max(self.config.search_windows - (len(turn) - len(missed)), len(missed))
        share, rest = divmod(left, len(missed))
        first = self._images % len(missed)  # the rest goes to another one in each image
        return {one: share + ((n - first) % len(missed) < rest) for n, one in enumerate(missed)}

    def _turn(self, prompts: Prompts, limit: int | None, only: Collection[int] | None) -> list[int]:
        """The targets to process in an image, in order."""
        ids = [one for one in self._targets if (only is None or one in only) and one not in prompts]
        if limit is not None and limit < len(ids):
            ids.sort(key=lambda one: (one != self.steered, self._stepped.get(one, 0), one))
            ids = ids[: max(limit, 1)]
        return sorted({*ids, *prompts}, key=lambda one: (one != self.steered, one))


def called(function: Callable[[Frame], bool], frame: Frame) -> Future[bool]:
    """As an executor would call it, in this thread and now."""
    future: Future[bool] = Future()
    try:
        future.set_result(function(frame))
    except Exception as error:
        future.set_exception(error)
    return future


class SharedCameraMotion:
    """A source that is asked once per image, for several targets (`of_target`). ``stamp_ns``: of the last
    image, None before the first."""

    def __init__(self, source: CameraMotionSource, targets: Sized) -> None:
        """``targets``: those that there are."""
        self.source, self._targets = source, targets
        self.stamp_ns: int | None = None
        self._users: list[_TargetCameraMotion] = []
        self._lock = threading.Lock()

    def of_target(self) -> CameraMotionSource:
        self._users.append(_TargetCameraMotion(self))
        return self._users[-1]

    def advance(self, image: Image, stamp_ns: int, targets: Sequence[Box]) -> None:
        """Give all users the motion to this image, unless they have it."""
        with self._lock:
            if stamp_ns != self.stamp_ns:
                self.stamp_ns = stamp_ns
                motion = self.source.estimate(image, stamp_ns, targets)
                for user in self._users:
                    user.add(motion)

    def restart(self) -> None:
        """A new target: what was estimated before is of no use, unless to others."""
        if len(self._targets) <= 1:
            self.stamp_ns = None
            self.source.reset()


class _TargetCameraMotion:
    """The `CameraMotionSource` of one target, which may not have its turn in every image. After a selection
    on an image before the others' last one it goes through its own images, until it is level with them."""

    def __init__(self, shared: SharedCameraMotion) -> None:
        self._shared = shared
        self.prefetch = shared.source.prefetch
        self._ask(None)
        self._is_new = False  # no image came since `reset`

    def _ask(self, own: CameraMotionSource | None) -> None:
        """``own``: the source for images of its own, None for those of all."""
        self._own = own
        self._since: CameraMotion | None = None  # the last call of `estimate`
        source = own or self._shared.source
        self.keep, self.since = source.keep, source.since

    def add(self, motion: CameraMotion) -> None:
        before = self._since
        if before is not None and before.matrix is not None and motion.matrix is not None:
            motion = CameraMotion(motion.matrix @ before.matrix, motion.reason)
        elif before is not None and before.matrix is None:
            motion = before
        self._since = motion

    def estimate(self, image: Image, stamp_ns: int, targets: Sequence[Box]) -> CameraMotion:
        others_ns = self._shared.stamp_ns
        is_behind = others_ns is not None and stamp_ns < others_ns
        if self._is_new and is_behind:
            self._ask(self._shared.source.another())
        self._is_new = False
        if self._own is not None:
            motion: CameraMotion | None = self._own.estimate(image, stamp_ns, targets)
            if not is_behind:
                self._shared.advance(image, stamp_ns, targets)
                self._ask(None)
        else:
            self._shared.advance(image, stamp_ns, targets)
            motion, self._since = self._since, None
        return motion or CameraMotion(None, "no previous image")

    def another(self) -> CameraMotionSource:
        return self._shared.source.another()

    def reset(self) -> None:
        self._shared.restart()
        self._ask(None)
        self._is_new = True
