"""Runs engines of TensorRT on a stream of the GPU."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from efftam_ros.core.errors import BackendError, one_line
from efftam_ros.runtime.bundle import Tensor, table_fault
from efftam_ros.runtime.cuda.api import Cuda, CudaError, DeviceLostError, megabytes
from efftam_ros.runtime.cuda.memory import ALIGNMENT, DeviceBuffer
from efftam_ros.runtime.cuda.stream import CUDA_GRAPH, CapturedGraph, Stream
from efftam_ros.runtime.device.graph import Places
from efftam_ros.runtime.tensorrt.library import Library, TensorRTError

Tables = Mapping[str, tuple[Mapping[str, Tensor], Mapping[str, Tensor]]]
"""By graph of a bundle, the tables of its inputs and outputs, from the bundle's manifest."""

_BUILD_AGAIN = "build the engine again: efftam build"
_DTYPES = {
    "FLOAT": "float32",
    "HALF": "float16",
    "BF16": "bfloat16",
    "INT8": "int8",
    "UINT8": "uint8",
    "INT32": "int32",
    "INT64": "int64",
    "BOOL": "bool",
}


class TrtGraphs:
    """A `GraphOpener` that opens engines of TensorRT."""

    def __init__(
        self,
        library: Library,
        stream: Stream,
        tables: Tables,
        plans: Callable[[str], bytes],
        notice: str = "",
    ) -> None:
        """Start TensorRT's Runtime.

        Args:
            library: TensorRT.
            stream: The stream on which engines run. It is not closed here.
            tables: The inputs and outputs that each graph must have.
            plans: Returns the serialized engine of a graph with this name.
            notice: A line that the user should read about the engines, or "".

        Raises:
            BackendError: TensorRT can't use the driver.
        """
        self._library, self._stream, self._tables, self._plans = library, stream, tables, plans
        self._runtime: Any = library.start("Runtime")
        self._scratch = Scratch(stream.cuda)
        self._graphs: list[TrtGraph] = []
        self.notice = notice
        self.made_of = f"TensorRT {library.dotted}"

    @property
    def device_bytes(self) -> int:
        """Memory of the GPU for weights and for the working memory of the engines, bytes."""
        return sum(graph.device_bytes for graph in self._graphs) + self._scratch.nbytes

    def open(self, name: str) -> TrtGraph:
        """Load the engine of the graph with this name.

        Raises BackendError if it was built for another version of TensorRT or another GPU, or if its tensors
        differ from the bundle's table. Raises RuntimeError after `close`.
        """
        if self._runtime is None:
            raise RuntimeError("these engines are closed; open the pipeline again")
        log_start = self._library.log.position
        plan = self._plans(name)
        self.made_of += f" {hashlib.sha256(plan).hexdigest()}"
        engine = self._runtime.deserialize_cuda_engine(plan)
        if engine is None:
            raise BackendError(
                f"TensorRT {self._library.dotted} can't load the engine of {name}"
                f" ({self._library.log.reason(log_start)})",
                _BUILD_AGAIN,
            )
        inputs, outputs = self._tables[name]
        _check_tensors(self._library.module, name, engine, inputs, outputs)
        graph = TrtGraph(name, self._library, engine, len(plan), self._stream, self._scratch, inputs, outputs)
        self._graphs.append(graph)
        return graph

    def close(self) -> None:
        """Free everything: contexts before engines, and engines before the Runtime, as TensorRT requires.

        Can be called twice.
        """
        for graph in self._graphs:
            graph.close()
        self._scratch.free()
        self._runtime = None


class TrtGraph:
    """A `DeviceGraph` that is an engine of TensorRT."""

    def __init__(
        self,
        name: str,
        library: Library,
        engine: Any,
        plan_bytes: int,
        stream: Stream,
        scratch: Scratch,
        inputs: Mapping[str, Tensor],
        outputs: Mapping[str, Tensor],
    ) -> None:
        self.name, self.inputs, self.outputs = name, inputs, outputs
        self.library, self.stream, self.scratch, self._engine = library, stream, scratch, engine
        self._weight_bytes = _weight_bytes(library.module, engine, plan_bytes)
        scratch_bytes = int(
            engine.device_memory_size_v2
            if hasattr(engine, "device_memory_size_v2")  # exists from TensorRT 10.2 on
            else engine.device_memory_size
        )
        scratch.reserve(scratch_bytes)
        self._bindings: list[TrtBinding] = []

    @property
    def device_bytes(self) -> int:
        """Memory of the GPU for the weights, bytes."""
        return 0 if self._engine is None else self._weight_bytes

    def binding(self, fixed: bool) -> TrtBinding:
        """Return a new binding of the engine to device addresses, which never change if it is ``fixed``.

        Raises BackendError if the GPU has too little memory for it, and RuntimeError after `close`.
        """
        if self._engine is None:
            raise RuntimeError(f"graph {self.name} is closed; open it again")
        log_start = self.library.log.position
        # With this strategy the context allocates no working memory. `Scratch` provides the working memory.
        strategy = self.library.module.ExecutionContextAllocationStrategy.USER_MANAGED
        context = self._engine.create_execution_context(strategy)
        if context is None:
            raise BackendError(
                f"TensorRT can't run {self.name} ({self.library.log.reason(log_start)})",
                "stop other programs that hold GPU memory, or choose a smaller bundle",
            )
        binding = TrtBinding(self, context, fixed)
        self._bindings.append(binding)
        return binding

    def layers(self) -> list[dict[str, Any]]:
        """Return the layers of the engine as TensorRT's inspector reports them, as dictionaries.

        Each has the entry "Name". Other entries, such as types of tensors, exist only if the engine was built
        with detailed information.
        """
        trt = self.library.module
        text = self._engine.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON)
        return [layer if isinstance(layer, dict) else {"Name": layer} for layer in json.loads(text)["Layers"]]

    def close(self) -> None:
        """Free the engine and its contexts, which no pending work may use. Can be called twice."""
        for binding in self._bindings:
            binding.close()
        self._engine = None


class TrtBinding:
    """A `Binding` that is an execution context of TensorRT, with the addresses of its tensors.

    The first run of a fixed binding is not captured, because TensorRT allocates memory in it. The launches
    are captured after this run, and every later run launches one CUDA graph. A binding that is not fixed is
    never captured. Before a run, only the addresses and shapes that have changed are set in the context.
    """

    def __init__(self, graph: TrtGraph, context: Any, fixed: bool) -> None:
        self._graph = graph
        self._name, self._library, self._stream = graph.name, graph.library, graph.stream
        self._scratch: DeviceBuffer | None = None
        self._context, self._fixed = context, fixed
        self._inputs = graph.inputs
        self._places = Places(graph.name, graph.inputs, graph.outputs, fixed)
        self._applied: dict[str, tuple[int, tuple[int, ...]]] = {}
        self._changed: set[str] = set(self._places.tensors)
        self._captured: CapturedGraph | None = None
        self.launch = (
            "plain launches: not run yet" if fixed else "plain launches: addresses and shapes change"
        )

    def bind(self, name: str, pointer: int, shape: tuple[int, ...]) -> None:
        """Place the input or output ``name`` at a device address; see `Binding.bind`.

        Raises ValueError for a shape that the graph does not have, an address that is not aligned, and a
        change after the first run of a fixed binding.
        """
        if self._places.put(name, pointer, shape):
            self._changed.add(name)

    def run(self) -> None:
        """Enqueue the engine on the pipeline's stream and return without waiting.

        Raises ValueError if a tensor is not bound or an output has another shape than the bound one,
        RuntimeError after `close`, and TensorRTError or CudaError if TensorRT or the GPU fails.
        """
        if self._captured is not None:
            self._captured.launch(self._stream)
            return
        if self._context is None:
            raise RuntimeError(f"graph {self._name} is closed; open it again")
        if self._changed:
            self._update_context()
        self._use_scratch()
        self._enqueue()
        is_first, self._places.has_run = not self._places.has_run, True
        if self._fixed and is_first:
            self._capture()

    @property
    def alone(self) -> str:
        """Why the engine can't be captured as a part of a larger CUDA graph; "" if it can.

        The engine can be captured if `run` was able to capture its launches.
        """
        return "" if self._captured is not None else self.launch

    def enqueue(self) -> None:
        """Enqueue the engine by single launches of its kernels. Raises TensorRTError if TensorRT fails."""
        self._enqueue()

    def close(self) -> None:
        """Free the context, which no pending work may use. Can be called twice."""
        if self._captured is not None:
            self._captured.close()
        self._captured = self._context = None

    def _use_scratch(self) -> None:
        scratch = self._graph.scratch.buffer()
        if scratch is self._scratch:
            return
        if hasattr(self._context, "set_device_memory"):  # exists from TensorRT 10.1 on
            self._context.set_device_memory(scratch.pointer, scratch.nbytes)
        else:
            self._context.device_memory = scratch.pointer
        self._scratch = scratch

    def _update_context(self) -> None:
        """Set the addresses and shapes in the context that have changed since the last run.

        Raises ValueError if a tensor is not bound or an output has another shape than the bound one, and
        TensorRTError if TensorRT rejects a shape or an address.
        """
        self._places.require_all()
        context = self._context
        reshaped = False
        for name in [name for name in self._places.tensors if name in self._changed]:
            pointer, shape = self._places.of[name]
            old_pointer, old_shape = self._applied.get(name, (0, ()))
            if name in self._inputs and shape != old_shape:
                reshaped = True
                self._require(f"set_input_shape of {name} to {shape}", context.set_input_shape, name, shape)
            if pointer != old_pointer:
                self._require(f"set_tensor_address of {name}", context.set_tensor_address, name, pointer)
            self._applied[name] = (pointer, shape)
        if reshaped:
            log_start = self._library.log.position
            try:
                unknown = context.infer_shapes()
            except RuntimeError as error:  # raised by TensorRT 10.3; newer versions return the names instead
                reason = f"{self._name}: infer_shapes failed ({one_line(error)})"
                raise TensorRTError(f"{reason}; {_BUILD_AGAIN}") from error
            if unknown:
                self._fail(f"infer_shapes without {', '.join(unknown)}", log_start)
        for name in self._places.tensors:
            if name in self._inputs or not (reshaped or name in self._changed):
                continue
            real, bound = tuple(context.get_tensor_shape(name)), self._places.of[name][1]
            if real != bound:
                self._changed.add(name)
                raise ValueError(
                    f"{self._name}: output {name} has the shape {list(real)}, but is bound as {list(bound)}"
                )
        self._changed.clear()

    def _enqueue(self) -> None:
        self._require("execute_async_v3", self._context.execute_async_v3, self._stream.handle)

    def _capture(self) -> None:
        """Capture the kernel launches of one run as a CUDA graph. If this fails, the attribute `launch` holds
        the reason."""
        try:
            with self._stream.capture() as captured:
                self._enqueue()
        except DeviceLostError:
            raise
        except (TensorRTError, CudaError) as error:
            self.launch = f"plain launches: {error}"
            return
        self._captured, self.launch = captured, CUDA_GRAPH

    def _require(self, what: str, call: Callable[..., bool], *args: Any) -> None:
        log_start = self._library.log.position
        if not call(*args):
            self._fail(what, log_start)

    def _fail(self, what: str, log_start: int) -> None:
        reason = self._library.log.reason(log_start)
        raise TensorRTError(f"{self._name}: {what} failed ({reason}); {_BUILD_AGAIN}")


def _weight_bytes(trt: Any, engine: Any, plan_bytes: int) -> int:
    """Return the size of an engine's weights, bytes.

    If this version of TensorRT does not report it, the size of the serialized engine is returned instead.
    """
    with suppress(AttributeError):
        return int(engine.get_engine_stat(trt.EngineStat.TOTAL_WEIGHTS_SIZE))
    return plan_bytes


def _check_tensors(
    trt: Any, graph: str, engine: Any, inputs: Mapping[str, Tensor], outputs: Mapping[str, Tensor]
) -> None:
    names = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
    for kind, mode, table in (
        ("input", trt.TensorIOMode.INPUT, inputs),
        ("output", trt.TensorIOMode.OUTPUT, outputs),
    ):
        found = [name for name in names if engine.get_tensor_mode(name) == mode]
        if fault := table_fault(kind, {name: _tensor(engine, name) for name in found}, table):
            raise BackendError(f"the engine of {graph} {fault}", _BUILD_AGAIN)
        for name in found:
            if engine.get_tensor_location(name) != trt.TensorLocation.DEVICE:
                raise BackendError(
                    f"the engine of {graph} can't be used: it needs {kind} {name} in host memory",
                    _BUILD_AGAIN,
                )


def _tensor(engine: Any, name: str) -> Tensor:
    """Return type and shape of an engine's tensor. An axis of any size, -1 in TensorRT, becomes "?"."""
    dtype = engine.get_tensor_dtype(name).name
    shape = ("?" if axis == -1 else axis for axis in engine.get_tensor_shape(name))
    return Tensor(_DTYPES.get(dtype, dtype), tuple(shape))


class Scratch:
    """The working memory of engines. All engines share it, because a stream runs them one after the other.

    It is allocated when an engine first runs, as large as the largest need of all engines that are open then.
    If an engine with a larger need is opened later, a further block is allocated. The first block stays,
    because captured CUDA graphs contain its address.
    """

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self._needed_bytes = 0
        self._buffers: list[DeviceBuffer] = []

    @property
    def nbytes(self) -> int:
        """Size of all blocks, including one that the next run will allocate, bytes."""
        held = sum(buffer.nbytes for buffer in self._buffers)
        largest = self._buffers[-1].nbytes if self._buffers else 0
        return held + (self._needed_bytes if self._needed_bytes > largest else 0)

    def reserve(self, nbytes: int) -> None:
        """Ensure that the next block of `buffer` has at least ``nbytes``, which an engine needs."""
        self._needed_bytes = max(self._needed_bytes, nbytes)

    def buffer(self) -> DeviceBuffer:
        """Return a block that is large enough for every open engine, and allocate one if needed.

        Raises BackendError if the GPU has too little memory.
        """
        if not self._buffers or self._buffers[-1].nbytes < self._needed_bytes:
            try:
                self._buffers.append(DeviceBuffer(self._cuda, max(self._needed_bytes, ALIGNMENT)))
            except DeviceLostError:
                raise
            except CudaError as error:
                raise BackendError(
                    f"TensorRT needs {megabytes(self._needed_bytes)} of working memory ({error})",
                    "stop other programs that hold GPU memory, or choose a smaller bundle",
                ) from error
        return self._buffers[-1]

    def free(self) -> None:
        """Free all blocks, which no pending work may use."""
        for buffer in self._buffers:
            buffer.free()
        self._buffers.clear()
        self._needed_bytes = 0
