"""A fixed order of work on a stream, timed by events, that becomes a CUDA graph where it can be captured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from efftam_ros.runtime.cuda.api import Cuda, CudaError, DeviceLostError
from efftam_ros.runtime.cuda.stream import CUDA_GRAPH, CapturedGraph, Event, Stream
from efftam_ros.runtime.device.graph import GraphError

if TYPE_CHECKING:
    from efftam_ros.runtime.device.graph import Binding

    Step = Callable[[], None] | Binding
    """A copy or a kernel that is enqueued when called, or a graph."""


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
        """One frame in so many is timed; 1: every frame."""
        self.is_on = False
        """Whether the current frame is timed."""
        self.origin: Event | None = None
        """The moment that `spans_ms` count from; None: they are not read."""
        self.spans_ms: dict[str, tuple[float, float]] = {}
        """Begin and end of each stage that was read last, ms of the GPU after the origin."""
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
        """Begin a new frame."""
        self.is_on = self._frames % self.interval == 0
        self._frames += 1

    def time(self, name: str, stream: Stream) -> AbstractContextManager[None]:
        """Time what is enqueued in the block, if the frame is timed."""
        return self._timed(name, stream) if self.is_on else _UNTIMED

    def passed(self, name: str) -> None:
        """Note that the stage's events were recorded, by `time` or by a captured graph."""
        self._recorded[name] = None

    def read(self) -> None:
        """Take the times of all that was recorded since the last call, for which the host has waited."""
        if self._recorded:
            recorded, self._recorded = self._recorded, {}
            events = [(name, self._events[name]) for name in recorded]
            taken = {name: 1e-3 * end.milliseconds_since(start) for name, (start, end) in events}
            if (origin := self.origin) is not None:
                self.spans_ms = {
                    name: (start.milliseconds_since(origin), end.milliseconds_since(origin))
                    for name, (start, end) in events
                }
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


@dataclass(frozen=True)
class Stage:
    """Steps that are timed under one name."""

    name: str
    steps: Sequence[Step]


class Section:
    """Stages with copies before and after them. Addresses and sizes are the same in every run; what differs
    from frame to frame lies in the memory that the steps read.

    It is captured twice, without the clock's events and with them; a frame launches one of the two graphs.
    """

    def __init__(
        self,
        stream: Stream,
        clock: StageClock,
        stages: Sequence[Stage],
        after: Iterable[Callable[[], None]] = (),
    ) -> None:
        self._stream, self._clock = stream, clock
        self._stages, self._after = stages, tuple(after)
        self._graphs: dict[bool, CapturedGraph] = {}  # by whether they are timed
        self.launch = "plain launches: not captured yet"
        """How `run` starts the work: "cuda graph", or "plain launches" with the reason."""

    def run(self) -> None:
        """Enqueue all of it."""
        if not self._graphs:
            self._enqueue(captured=False)
            return
        self._graphs[self._clock.is_on].launch(self._stream)
        if self._clock.is_on:
            for stage in self._stages:
                self._clock.passed(stage.name)

    def capture(self) -> None:
        """Capture it as CUDA graphs, once every graph in it has run. If that fails, `launch` has the
        reason."""
        bindings = [step for stage in self._stages for step in stage.steps if not callable(step)]
        alone = next((binding.alone for binding in bindings if binding.alone), "")
        if alone:
            self.launch = f"plain launches: {alone}"
            return
        try:
            for is_timed in (False, True):
                self._clock.is_on = is_timed
                with self._stream.capture() as graph:
                    self._enqueue(captured=True)
                self._graphs[is_timed] = graph
        except DeviceLostError:
            raise
        except (GraphError, CudaError) as error:
            self.close()
            self.launch = f"plain launches: {error}"
            return
        self.launch = CUDA_GRAPH

    def close(self) -> None:
        for graph in self._graphs.values():
            graph.close()
        self._graphs = {}

    def _enqueue(self, captured: bool) -> None:
        for stage in self._stages:
            with self._clock.time(stage.name, self._stream):
                for step in stage.steps:
                    if callable(step):
                        step()
                    elif captured:
                        step.enqueue()
                    else:
                        step.run()
        for step in self._after:
            step()
