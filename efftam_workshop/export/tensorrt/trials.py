"""Builds engines without storing them, compares them with the CPU and times them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import onnx
from numpy.typing import NDArray

from efftam_ros.core.errors import BackendError, one_line
from efftam_ros.runtime.cuda.api import Cuda, CudaError, DeviceLostError
from efftam_ros.runtime.cuda.stream import Event, Stream
from efftam_ros.runtime.device.graph import DeviceGraph
from efftam_ros.runtime.tensorrt.engine_set import EngineSet
from efftam_ros.runtime.tensorrt.library import TensorRTError
from efftam_ros.runtime.tensorrt.runner import TrtGraphs
from efftam_workshop.agreement.reference import GraphReference, Tolerance
from efftam_workshop.agreement.runners import DeviceRunner, Runner
from efftam_workshop.export.tensorrt.builder import (
    Progress,
    allows_tf32,
    build_engine,
    timing_cache_path,
)

ROUNDS, RUNS = 7, 10
"""Rounds, and runs per round: engines alternate, so that changes of the GPU's clock affect all of them."""


@dataclass(frozen=True)
class BuiltEngine:
    """A built engine that is not stored yet.

    ``form``: "fp32", "int8" or the form of attention in FP16. ``attention``: form of its attention, "" for
    FP32. ``plan``: the serialized engine. ``seconds``: duration of the build. ``tf32``: whether TF32 was
    allowed. ``layers``: number of layers. ``precisions``: types of the layers' outputs. ``fused``: names of
    the fused attention kernels.
    """

    module: str
    form: str
    attention: str
    plan: bytes
    seconds: float
    tf32: bool
    layers: int
    precisions: tuple[str, ...]
    fused: tuple[str, ...]


class RefusedError(Exception):
    """A form of a graph can't be used; the message is the reason in one line."""


class EngineTrials:
    """Builds, compares and times engines of one `EngineSet` on one GPU."""

    def __init__(
        self, engines: EngineSet, cuda: Cuda, stream: Stream, progress: Progress, reference: GraphReference
    ) -> None:
        self._engines, self._cuda, self._stream = engines, cuda, stream
        self._progress, self.reference = progress, reference

    def build(self, name: str, form: str, attention: str, model: onnx.ModelProto) -> BuiltEngine:
        """Return the engine of a module's graph. Raises RefusedError if TensorRT can't build or load it."""
        engines = self._engines
        begin = time.monotonic()
        try:
            plan = build_engine(
                engines.library,
                model,
                engines.precision,
                engines.profiles(name),
                self._progress,
                timing_cache_path(engines.store.folder, engines.library, engines.facts, engines.power_mode),
            )
            seconds = time.monotonic() - begin
            layers = self._layers(name, plan)
        except (BackendError, TensorRTError, CudaError) as error:
            raise _refused(error) from error
        names = [str(layer.get("Name", "")) for layer in layers]
        return BuiltEngine(
            name,
            form,
            attention,
            plan,
            round(seconds, 2),
            allows_tf32(model),
            len(layers),
            tuple(sorted(set(_precisions(layers)))),
            tuple(text for text in names if "mha" in text.lower()),
        )

    def check(self, engine: BuiltEngine, limits: Tolerance) -> None:
        """Compare an engine's outputs with the CPU's on generated inputs.

        Raises RefusedError, naming the worst output, if they differ by more than ``limits`` or the engine
        does not run.
        """
        try:
            with self.running({engine.module: engine.plan}) as runners:
                fault = self.reference.judge(runners, clip=False, limits=limits).fault
        except (BackendError, TensorRTError, CudaError) as error:
            raise _refused(error) from error
        if fault:
            raise RefusedError(fault)

    def times_ms(self, engines: Sequence[BuiltEngine]) -> dict[str, float]:
        """Return the GPU time of engines of one module by form, ms, on the inputs of a tracked frame.

        The engines run alternately. Raises RefusedError if they can't be loaded together or do not run.
        """
        name = engines[0].module
        opened = {engine.form: self._opener({name: engine.plan}) for engine in engines}
        try:
            graphs = {form: opener.open(name) for form, opener in opened.items()}
            with ExitStack() as stack:
                return self._measured(graphs, self.reference.chain.inputs[name], stack)
        except (BackendError, TensorRTError, CudaError) as error:
            raise _refused(error) from error
        finally:
            for opener in opened.values():
                opener.close()

    def _measured(
        self, graphs: Mapping[str, DeviceGraph], inputs: Mapping[str, NDArray[Any]], stack: ExitStack
    ) -> dict[str, float]:
        """Return the GPU time of one run of each graph, ms: median of all rounds but the first."""
        start, end = (stack.enter_context(closing(Event(self._cuda, timing=True))) for _ in range(2))
        turns = {
            name: DeviceRunner(self._cuda, self._stream, graph, fixed=True) for name, graph in graphs.items()
        }
        for runner in turns.values():
            runner.load(inputs, stack)
            runner.run()  # the first run is not captured as a CUDA graph
        taken: dict[str, list[float]] = {name: [] for name in turns}
        for _ in range(ROUNDS + 1):
            for name, runner in turns.items():
                self._stream.record(start)
                for _ in range(RUNS):
                    runner.run()
                self._stream.record(end)
                end.wait()
                taken[name].append(end.milliseconds_since(start) / RUNS)
        return {name: median(values[1:]) for name, values in taken.items()}

    @contextmanager
    def running(self, plans: Mapping[str, bytes]) -> Iterator[dict[str, Runner]]:
        """Yield runners of the engines ``plans`` by module; they are closed when the context ends."""
        opener = self._opener(plans)
        try:
            yield {name: DeviceRunner(self._cuda, self._stream, opener.open(name)) for name in plans}
        finally:
            self._stream.synchronize()
            opener.close()

    def _opener(self, plans: Mapping[str, bytes]) -> TrtGraphs:
        return self._engines.opener(self._stream, plans.__getitem__)

    def _layers(self, name: str, plan: bytes) -> list[dict[str, Any]]:
        opener = self._opener({name: plan})
        try:
            return opener.open(name).layers()
        finally:
            opener.close()


def _refused(error: Exception) -> RefusedError:
    """Convert the error of one form to a RefusedError. Raises a DeviceLostError: no other form can run."""
    if isinstance(error, DeviceLostError):
        raise error
    return RefusedError(error.reason if isinstance(error, BackendError) else one_line(error))


def _precisions(layers: list[dict[str, Any]]) -> Iterator[str]:
    for layer in layers:
        for tensor in layer.get("Outputs", ()):
            text = str(tensor.get("Format/Datatype", "")) if isinstance(tensor, dict) else ""
            yield text.split()[-1] if text else "unknown"
