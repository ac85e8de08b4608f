"""Sequences of work on a stream that are timed by events, and captured as CUDA graphs where possible."""

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
    """A function that enqueues a copy or a kernel, or a graph of the network with its tensors."""


INTERVAL = 30
"""Number of frames from one frame that is timed to the next.

Events take time on the GPU and in Python, and diagnostics need only about one measurement per second.
"""
_UNTIMED = nullcontext()


class StageClock:
    """Measures how long the stages of a frame take on the GPU, by a pair of events for each stage.

    Events are recorded only in timed frames. The times are read after the host has waited for the frame's
    answers. Stages that run after this wait are read one frame later. Events that are recorded in a capture
    become a part of the CUDA graph, and every launch of the graph records them.
    """

    def __init__(self, cuda: Cuda, stages: Iterable[str]) -> None:
        self.interval = INTERVAL
        """Number of frames from one frame that is timed to the next; 1: every frame is timed."""
        self.is_on = False
        """Whether the current frame is timed."""
        self.origin: Event | None = None
        """The event at which the times in `spans_ms` are 0; None: `spans_ms` stays empty."""
        self.spans_ms: dict[str, tuple[float, float]] = {}
        """By stage, begin and end of its latest timed run, by the GPU's clock, ms after `origin`."""
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
        """By stage, how long it took on the GPU in the latest timed frame, s.

        The memory encoder may not have ended when `read` was called last. Its value is then that of the timed
        frame before.
        """
        return self._seconds

    def begin(self) -> None:
        """Begin a new frame, and decide whether it is timed."""
        self.is_on = self._frames % self.interval == 0
        self._frames += 1

    def time(self, name: str, stream: Stream) -> AbstractContextManager[None]:
        """Return a context manager that times the work enqueued in its ``with`` block as the stage ``name``.

        In a frame that is not timed it does nothing.
        """
        return self._timed(name, stream) if self.is_on else _UNTIMED

    def passed(self, name: str) -> None:
        """Register a stage whose events were enqueued in this frame, so that `read` reads them."""
        self._recorded[name] = None

    def read(self) -> None:
        """Read the times of all stages that `passed` has registered since the last call.

        The host must have waited for the end of these stages.
        """
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
    """Steps of work that are timed together under one name."""

    name: str
    steps: Sequence[Step]


class Section:
    """Stages, and copies after them, that are enqueued in the same way in every frame.

    Addresses and sizes are the same in every run. Numbers that differ between frames are in memory that the
    steps read. A section is captured as two CUDA graphs, one with the clock's events and one without. A frame
    launches the graph with the events only if it is timed.
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
        # The captured graphs. Key: whether the graph records the clock's events. Empty: not captured.
        self._graphs: dict[bool, CapturedGraph] = {}
        self.launch = "plain launches: not captured yet"
        """How `run` starts the work: "cuda graph", or "plain launches" with the reason."""

    def run(self) -> None:
        """Enqueue all stages and copies, as one CUDA graph if the section was captured."""
        if not self._graphs:
            self._enqueue(captured=False)
            return
        self._graphs[self._clock.is_on].launch(self._stream)
        if self._clock.is_on:
            for stage in self._stages:
                self._clock.passed(stage.name)

    def capture(self) -> None:
        """Capture the section as CUDA graphs. If this fails, `launch` states the reason.

        Every graph of the network in the section must have run before.
        """
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
