"""The order of work on the fake GPU: late, unfavourable, and checked for races."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from runtime.cuda.fake_memory import UNDEFINED, Memory, RaceError, Range

Clock = dict[int, int]
"""For each stream, how many pieces of its work come before."""

PIECE_MS = 0.01
"""GPU time of a piece of work that has no duration of its own."""


@dataclass(frozen=True)
class Job:
    """Work that is not yet in a stream, as graphs keep it. ``fills``: whether it writes all bytes of
    ``writes``, which are undefined until it is done; ``nbytes``: that a copy between host and device moves;
    ``event``: that a graph records here, with an attribute ``work``."""

    name: str
    reads: tuple[Range, ...] = ()
    writes: tuple[Range, ...] = ()
    action: Callable[[], None] | None = None
    fills: bool = False
    nbytes: int = 0
    event: Any = None


@dataclass(eq=False)
class Work:
    """A job in a stream, after other work."""

    job: Job
    stream: int
    clock: Clock
    after: list[Work]
    done: bool = False
    finished_at_ms: float = 0.0

    @property
    def tick(self) -> int:
        return self.clock[self.stream]

    def precedes(self, clock: Mapping[int, int]) -> bool:
        """Whether something with this clock can only come after this work."""
        return clock.get(self.stream, 0) >= self.tick

    def describe(self) -> str:
        return f"{self.job.name} (number {self.tick} of stream {self.stream:#x})"


@dataclass
class Queue:
    """A stream: its clock, what is still to run, what its next work must wait for."""

    clock: Clock = field(default_factory=dict)
    last: Work | None = None
    pending: deque[Work] = field(default_factory=deque)
    awaited: list[Work] = field(default_factory=list)


class Scheduler:
    """Runs work only when the host waits, then in any order that the waits between streams allow.

    The host counts as one thread: an order made by locks between host threads is not seen. Times are those of
    a GPU that does one piece after the other: ``durations`` has the ms of work by name. ``latest``: the last
    work of each name; ``copied``: bytes by kind of copy.
    """

    def __init__(self, memory: Memory, seed: int) -> None:
        self._memory = memory
        self._random = random.Random(seed)
        self._queues: dict[int, Queue] = {}
        self._host: Clock = {}
        self._unordered: list[Work] = []
        self.durations: dict[str, float] = {}
        self.latest: dict[str, Work] = {}
        self.copied: Counter[str] = Counter()
        self._now_ms = 0.0
        self.on_run: Callable[[str], None] = lambda name: None

    def open(self, stream: int) -> None:
        self._queues[stream] = Queue()

    def submit(self, stream: int, job: Job) -> Work:
        """Raises RaceError, UseAfterFreeError, OutOfBoundsError."""
        for touched in (*job.reads, *job.writes):
            self._memory.block(touched)
        queue = self._queues[stream]
        clock = _join(queue.clock, self._host, *(work.clock for work in queue.awaited))
        clock[stream] = clock.get(stream, 0) + 1
        after = queue.awaited + ([queue.last] if queue.last else [])
        work = Work(job, stream, clock, after)
        self._refuse_race(work)
        self.latest[job.name] = work
        self.copied[job.name] += job.nbytes
        if job.fills:
            self._undefine(job.writes)
        queue.clock, queue.last, queue.awaited = dict(clock), work, []
        queue.pending.append(work)
        if job.reads or job.writes:
            self._unordered.append(work)
        return work

    def let_wait(self, stream: int, work: Work) -> None:
        """The stream's next work comes after ``work``."""
        self._queues[stream].awaited.append(work)

    def wait(self, work: Work) -> None:
        """The host waits for ``work``."""
        self._run(self._with_chance({work}))
        self._host_knows(work.clock)

    def wait_for_stream(self, stream: int) -> None:
        queue = self._queues[stream]
        for work in [*queue.awaited, *([queue.last] if queue.last else [])]:
            self.wait(work)

    def wait_for_all(self) -> None:
        for stream in self._queues:
            self.wait_for_stream(stream)

    def was_waited_for(self, work: Work) -> bool:
        """Whether the host has waited for ``work``, or for something behind it."""
        return work.precedes(self._host)

    def ask(self, work: Work) -> bool:
        """The host asks whether ``work`` is done; a little gets done after the answer."""
        if work.done:
            self._host_knows(work.clock)
            return True
        self._run_one(self._ancestors({work}))
        return False

    def refuse_release(self, freed: Range, call: str) -> None:
        """Raises RaceError when work that the host has not waited for uses memory about to be freed."""
        for work in self._unordered:
            if any(freed.overlaps(touched) for touched in (*work.job.reads, *work.job.writes)):
                raise RaceError(f"{call} of memory that {work.describe()} uses; nothing waited for it")

    def _refuse_race(self, work: Work) -> None:
        for other in self._unordered:
            if other.precedes(work.clock):
                continue
            for mine, theirs in (
                (work.job.writes, (*other.job.reads, *other.job.writes)),
                (work.job.reads, other.job.writes),
            ):
                for one in mine:
                    for two in theirs:
                        if one.overlaps(two):
                            where = max(one.start, two.start)
                            raise RaceError(
                                f"{other.describe()} and {work.describe()} both use the bytes at {where:#x}, "
                                "and no event or wait sets their order"
                            )

    def _undefine(self, ranges: Iterable[Range]) -> None:
        waiting = [work.job for queue in self._queues.values() for work in queue.pending]
        used = [touched for job in waiting for touched in (*job.reads, *job.writes)]
        for wanted in ranges:
            if not any(wanted.overlaps(touched) for touched in used):
                self._memory.block(wanted).bytes_of(wanted)[...] = UNDEFINED

    def _host_knows(self, clock: Clock) -> None:
        self._host = _join(self._host, clock)
        self._unordered = [work for work in self._unordered if not work.precedes(self._host)]

    def _with_chance(self, targets: set[Work]) -> set[Work]:
        """What must run for the targets; of each stream's other work all or nothing, by chance."""
        others = {q.pending[-1] for q in self._queues.values() if q.pending and self._random.random() < 0.5}
        return self._ancestors(targets | others)

    @staticmethod
    def _ancestors(targets: set[Work]) -> set[Work]:
        found: set[Work] = set()
        waiting = [work for work in targets if not work.done]
        while waiting:
            work = waiting.pop()
            if work not in found:
                found.add(work)
                waiting += [earlier for earlier in work.after if not earlier.done]
        return found

    def _run(self, chosen: set[Work]) -> None:
        while chosen:
            chosen.discard(self._run_one(chosen))

    def _run_one(self, chosen: set[Work]) -> Work:
        heads = [queue for queue in self._queues.values() if queue.pending and queue.pending[0] in chosen]
        ready = [queue for queue in heads if all(earlier.done for earlier in queue.pending[0].after)]
        work = self._random.choice(ready).pending.popleft()
        work.done = True
        work.after = []  # what is done is no longer looked at, and may go
        if work.job.action is not None:
            self._now_ms += self.durations.get(work.job.name, PIECE_MS)
            self.on_run(work.job.name)
            work.job.action()
            work.job = replace(work.job, action=None)  # it may refer to what is to be given back
        work.finished_at_ms = self._now_ms
        for written in work.job.writes:
            self._memory.check_margins(self._memory.block(written))
        return work


def _join(*clocks: Clock) -> Clock:
    joined: Clock = {}
    for clock in clocks:
        for stream, tick in clock.items():
            joined[stream] = max(tick, joined.get(stream, 0))
    return joined
