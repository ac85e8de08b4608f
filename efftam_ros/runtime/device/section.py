"""A fixed order of work on a stream that becomes a CUDA graph where all of it can be captured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from efftam_ros.runtime.cuda.api import CudaError, DeviceLostError
from efftam_ros.runtime.cuda.stream import CUDA_GRAPH, CapturedGraph, Stream
from efftam_ros.runtime.device.timing import StageClock
from efftam_ros.runtime.tensorrt.library import TensorRTError

if TYPE_CHECKING:
    from efftam_ros.runtime.device.graph import Binding

    Step = Callable[[], None] | Binding
    """A copy or a kernel that is enqueued when called, or a graph."""


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
        self._launch = "plain launches: not captured yet"

    @property
    def launch(self) -> str:
        """How `run` starts the work: "cuda graph", or "plain launches" with the reason."""
        return self._launch

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
        """Make CUDA graphs of it, once every graph in it has run. Where that can't be, `launch` says why."""
        bindings = [step for stage in self._stages for step in stage.steps if not callable(step)]
        alone = next((binding.alone for binding in bindings if binding.alone), "")
        if alone:
            self._launch = f"plain launches: {alone}"
            return
        try:
            for is_timed in (False, True):
                self._clock.is_on = is_timed
                with self._stream.capture() as graph:
                    self._enqueue(captured=True)
                self._graphs[is_timed] = graph
        except DeviceLostError:
            raise
        except (TensorRTError, CudaError) as error:
            self.close()
            self._launch = f"plain launches: {error}"
            return
        self._launch = CUDA_GRAPH

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
