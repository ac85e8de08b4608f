"""Times the stages of a frame on the GPU by events, without waiting for any of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from efftam_ros.runtime.cuda.api import Cuda
from efftam_ros.runtime.cuda.stream import Event, Stream


class StageClock:
    """A pair of events for each stage. A stage's time is read when the frame's own wait has passed; what runs
    after that wait is read one frame later."""

    def __init__(self, cuda: Cuda, stages: Iterable[str]) -> None:
        self._events = {name: (Event(cuda, timing=True), Event(cuda, timing=True)) for name in stages}
        self._recorded: list[str] = []
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
        if name not in self._recorded:
            self._recorded.append(name)

    def read(self) -> None:
        """Take the times of all that was recorded and has ended since the last call."""
        ended = [name for name in self._recorded if self._events[name][1].reached()]
        self._seconds = {name: _seconds(*self._events[name]) for name in ended}
        self._recorded = [name for name in self._recorded if name not in ended]

    def close(self) -> None:
        for pair in self._events.values():
            for event in pair:
                event.close()
        self._events = {}


def _seconds(start: Event, end: Event) -> float:
    return 1e-3 * end.milliseconds_since(start)
