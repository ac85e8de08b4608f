"""A fixed order of work on a stream that becomes one CUDA graph where all of it can be captured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from efftam_ros.runtime.cuda.api import CudaError, DeviceLostError
from efftam_ros.runtime.cuda.stream import CapturedGraph, Stream
from efftam_ros.runtime.device.graph import CUDA_GRAPH, Binding
from efftam_ros.runtime.device.timing import StageClock
from efftam_ros.runtime.tensorrt.library import TensorRTError

Step = Callable[[], None] | Binding
"""A copy or a kernel that is enqueued when called, or a graph."""


@dataclass(frozen=True)
class Stage:
    """Steps that are timed under one name."""

    name: str
    steps: Sequence[Step]


class Section:
    """Stages with copies before and after them. Addresses and sizes are the same in every run; what differs
    from frame to frame lies in the memory that the steps read."""

    def __init__(
        self,
        stream: Stream,
        clock: StageClock,
        stages: Sequence[Stage],
        after: Iterable[Callable[[], None]] = (),
    ) -> None:
        self._stream, self._clock = stream, clock
        self._stages, self._after = stages, tuple(after)
        self._graph: CapturedGraph | None = None
        self._launch = "plain launches: not captured yet"

    @property
    def launch(self) -> str:
        """How `run` starts the work: "cuda graph", or "plain launches" with the reason."""
        return self._launch

    def run(self) -> None:
        """Enqueue all of it."""
        if self._graph is None:
            self._enqueue(captured=False)
        else:
            self._graph.launch(self._stream)
            for stage in self._stages:
                self._clock.passed(stage.name)

    def capture(self) -> None:
        """Make one CUDA graph of it, once every graph in it has run. Where that can't be, `launch` says
        why."""
        bindings = [step for stage in self._stages for step in stage.steps if not callable(step)]
        alone = next((binding.alone for binding in bindings if binding.alone), "")
        if alone:
            self._launch = f"plain launches: {alone}"
            return
        try:
            with self._stream.capture() as graph:
                self._enqueue(captured=True)
        except DeviceLostError:
            raise
        except (TensorRTError, CudaError) as error:
            self._launch = f"plain launches: {error}"
            return
        self._graph, self._launch = graph, CUDA_GRAPH

    def close(self) -> None:
        if self._graph is not None:
            self._graph.close()
            self._graph = None

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
