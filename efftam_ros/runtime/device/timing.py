"""Times the stages of some frames on the GPU by events, without waiting for any of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext

from efftam_ros.runtime.cuda.api import Cuda
from efftam_ros.runtime.cuda.stream import Event, Stream

INTERVAL = 30
"""Frames of which the first is timed: events take time on the GPU and in Python, and one sample a second
suffices for diagnostics."""
_UNTIMED = nullcontext()


class StageClock:
    """A pair of events for each stage, recorded in timed frames alone. A stage's time is read when the
    frame's own wait has passed; what runs after that wait is read one frame later.

    Within a capture the events become part of the graph, and every launch of it records them.
    """

    def __init__(self, cuda: Cuda, stages: Iterable[str]) -> None:
        self.interval = INTERVAL
        """Frames of which the first is timed; 1 for all of them."""
        self.is_on = False
        """Whether the current frame is timed."""
        self._frames = 0
        with ExitStack() as made:

            def event() -> Event:
                return made.enter_context(closing(Event(cuda, timing=True)))

            self._events = {name: (event(), event()) for name in stages}
            self._made = made.pop_all()
        self._recorded: dict[str, None] = {}
        self._seconds: dict[str, float] = {}

    @property
    def seconds(self) -> Mapping[str, float]:
        """Device seconds of the stages of the latest timed frame that had ended when `read` was called last,
        and of the memory encoder of the timed frame before where its own has not."""
        return self._seconds

    def begin(self) -> None:
        """A new frame."""
        self.is_on = self._frames % self.interval == 0
        self._frames += 1

    def time(self, name: str, stream: Stream) -> AbstractContextManager[None]:
        """Time what is enqueued in the block, if the frame is timed."""
        return self._timed(name, stream) if self.is_on else _UNTIMED

    def passed(self, name: str) -> None:
        """The stage's events were recorded, by `time` or by a captured graph."""
        self._recorded[name] = None

    def read(self) -> None:
        """Take the times of all that was recorded since the last call, for which the host has waited."""
        if self._recorded:
            recorded, self._recorded = self._recorded, {}
            events = [(name, self._events[name]) for name in recorded]
            taken = {name: 1e-3 * end.milliseconds_since(start) for name, (start, end) in events}
            self._seconds = taken if self.is_on else self._seconds | taken

    def close(self) -> None:
        self._made.close()
        self._events = {}

    @contextmanager
    def _timed(self, name: str, stream: Stream) -> Iterator[None]:
        start, end = self._events[name]
        stream.record(start)
        yield
        stream.record(end)
        if not stream.is_capturing:
            self.passed(name)
