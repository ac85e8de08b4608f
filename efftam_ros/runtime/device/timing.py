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
        """Take the times of all that was recorded since the last call. The host has waited for it."""
        recorded, self._recorded = self._recorded, {}
        self._seconds = {
            name: 1e-3 * end.milliseconds_since(start)
            for name in recorded
            for start, end in (self._events[name],)
        }

    def spans(self, origin: Event) -> dict[str, tuple[float, float]]:
        """Start and end of the stages in ms after ``origin``, of those whose events were reached."""
        return {
            name: (start.milliseconds_since(origin), end.milliseconds_since(origin))
            for name, (start, end) in self._events.items()
            if name in self._seconds
        }

    def close(self) -> None:
        for pair in self._events.values():
            for event in pair:
                event.close()
        self._events = {}
