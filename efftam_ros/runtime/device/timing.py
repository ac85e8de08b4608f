"""Times the stages of a frame on the GPU by events, without waiting for any of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from efftam_ros.runtime.cuda.api import Cuda
from efftam_ros.runtime.cuda.stream import Event, Stream


class StageClock:
    """A pair of events for each stage. A stage's time is read when the frame's own wait has passed; what runs
    after that wait is read one frame later.

    Within a capture the events become part of the graph, and every launch of it records them.
    """

    def __init__(self, cuda: Cuda, stages: Iterable[str]) -> None:
        self._events = {name: (Event(cuda, timing=True), Event(cuda, timing=True)) for name in stages}
        self._origin = Event(cuda, timing=True)
        self._recorded: dict[str, None] = {}
        self._seconds: dict[str, float] = {}

    @property
    def seconds(self) -> Mapping[str, float]:
        """Device seconds of the stages that had ended when `read` was called last."""
        return self._seconds

    @contextmanager
    def time(self, name: str, stream: Stream) -> Iterator[None]:
        start, end = self._events[name]
        stream.record(start)
        yield
        stream.record(end)
        if not stream.is_capturing:
            self.passed(name)

    def passed(self, name: str) -> None:
        """The stage's events were recorded, by `time` or by a captured graph."""
        self._recorded[name] = None

    def read(self) -> None:
        """Take the times of all that was recorded since the last call, for which the host has waited."""
        recorded, self._recorded = self._recorded, {}
        self._seconds = {name: 1e-3 * _milliseconds(*self._events[name]) for name in recorded}

    def start(self, stream: Stream) -> None:
        """Let `spans` count from here."""
        stream.record(self._origin)

    def spans(self) -> dict[str, tuple[float, float]]:
        """Start and end, ms after `start`, of the stages that `read` took last."""
        return {
            name: (_milliseconds(self._origin, start), _milliseconds(self._origin, end))
            for name, (start, end) in self._events.items()
            if name in self._seconds
        }

    def close(self) -> None:
        for pair in self._events.values():
            for event in pair:
                event.close()
        self._origin.close()
        self._events = {}


def _milliseconds(start: Event, end: Event) -> float:
    return end.milliseconds_since(start)
