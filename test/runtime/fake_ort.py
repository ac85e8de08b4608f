"""A stand-in for the onnxruntime module on a GPU: the real CPU session, run later on a fake CUDA stream.

Addresses are host memory. It has what the package uses and nothing else, refuses names of options that
onnxruntime doesn't have (which takes some of them in silence), and fails in onnxruntime's own words.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument
from support.graph_results import results_of

CPU, CUDA, TENSORRT = "CPUExecutionProvider", "CUDAExecutionProvider", "TensorrtExecutionProvider"
LEFT_TO_THE_CPU = (
    "[ONNXRuntimeError] : 1 : FAIL : This session contains graph nodes that are assigned to the default CPU"
    " EP, but fallback to CPU EP has been explicitly disabled by the user."
)
NO_CAPTURE = (
    "[ONNXRuntimeError] : 1 : FAIL : This session cannot use the graph capture feature as requested by the"
    " user as the model has control flow nodes which can't be supported by CUDAExecutionProvider"
)
NO_KERNEL = (
    "[ONNXRuntimeError] : 1 : FAIL : CUDA failure 209: no kernel image is available for execution on the"
    " device ; GPU=0 ; hostname=robot ; file=cuda_call.cc ; line=121 ; expr=cudaGetLastError();"
)
OUT_OF_MEMORY = (
    "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Failed to allocate memory for requested buffer of size"
    " 1048576"
)

NO_PLUGIN = "No registered plugin EP device found for '{}' with device_id={}"
WARNING = 2

ARENA_SHARE = 4
"""Memory for the results between nodes over that of the tensors of a graph."""

Range = tuple[int, int]
Enqueue = Callable[..., None]
"""``enqueue(stream, name, reads=[(pointer, bytes)...], writes=[...], action)``: as ``FakeGpu.enqueue``."""


def at_once(
    stream: int, name: str, reads: Sequence[Range], writes: Sequence[Range], action: Callable[[], None]
) -> None:
    """An `Enqueue` for tests without a fake GPU: everything runs when it is enqueued."""
    action()


@dataclass
class Faults:
    """What goes wrong, on request. ``cpu_ops``: op types that are left to the CPU; ``silent_cpu``: the
    provider can't start and onnxruntime takes the CPU; ``no_capture``: capture is refused at opening;
    ``capture_fails``: it fails at the first run; ``no_kernel``: error 209 at the first run; ``run_fails``:
    text of an error of every later run; ``placement_unknown``: a version that can't tell where nodes run."""

    silent_cpu: bool = False
    cpu_ops: frozenset[str] = frozenset()
    no_capture: bool = False
    capture_fails: bool = False
    no_kernel: bool = False
    run_fails: str = ""
    placement_unknown: bool = False


@dataclass(frozen=True)
class Run:
    """One run: of which graph file, on which stream, in which thread (a mark of its own, as identities are
    used again), replayed from a captured graph or not, how many launches it took, and whether the host waited
    for it."""

    graph: str
    stream: int
    graph_id: int
    replayed: bool
    host_waited: bool
    thread: object
    launches: int


@dataclass
class FakeOrt:
    """The module. ``sessions`` and ``runs`` record what was opened and run; ``allocate(session, bytes)``
    gives a session's arena more memory, in the first run of a binding with new shapes, until the session
    goes."""

    enqueue: Enqueue = at_once
    allocate: Callable[[object, int], bool] = lambda session, nbytes: True
    faults: Faults = field(default_factory=Faults)
    version: str = "1.31.1"
    providers: tuple[str, ...] = (TENSORRT, CUDA, CPU)
    kept: list[weakref.ref[FakeSession]] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)

    severity: int = WARNING
    here: threading.local = field(default_factory=threading.local)

    file: str = "/nowhere/onnxruntime/__init__.py"  # beside it there are no provider libraries to look into

    @property
    def __file__(self) -> str:
        return self.file

    @property
    def __version__(self) -> str:
        return self.version

    def get_available_providers(self) -> list[str]:
        return list(self.providers)

    def set_default_logger_severity(self, level: int) -> None:
        self.severity = level

    def SessionOptions(self) -> FakeSessionOptions:
        return FakeSessionOptions()

    def RunOptions(self) -> FakeRunOptions:
        return FakeRunOptions()

    def InferenceSession(self, path_or_bytes: str | bytes, *args: Any, **kwargs: Any) -> Any:
        session = FakeSession(self, path_or_bytes, *args, **kwargs)
        self.kept.append(weakref.ref(session))
        return session

    @property
    def sessions(self) -> list[FakeSession]:
        """Those that are still open."""
        return [session for session in (kept() for kept in self.kept) if session is not None]

    def thread(self) -> object:
        """A mark of the calling thread."""
        if not hasattr(self.here, "mark"):
            self.here.mark = object()
        return self.here.mark

    def opened(self, graph: str) -> FakeSession:
        """The last session of a graph, by its name in the bundle."""
        return next(session for session in reversed(self.sessions) if session.graph == graph)


class FakeSessionOptions:
    __slots__ = ("entries", "inter_op_num_threads", "intra_op_num_threads", "log_severity_level")

    def __init__(self) -> None:
        self.entries: dict[str, str] = {}

    def add_session_config_entry(self, key: str, value: str) -> None:
        self.entries[key] = value


class FakeRunOptions:
    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: dict[str, str] = {}

    def add_run_config_entry(self, key: str, value: str) -> None:
        self.entries[key] = value


@lru_cache(maxsize=32)
def _cpu_session(model: str | bytes, changed: int) -> onnxruntime.InferenceSession:
    """Shared by fakes of the same graph, as a real session keeps nothing between runs.

    ``changed``: when the file was written, in ns.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    return onnxruntime.InferenceSession(model, options, providers=[CPU])


class FakeSession:
    """An InferenceSession that says it runs on the asked provider."""

    def __init__(
        self,
        module: FakeOrt,
        path_or_bytes: str | bytes,
        sess_options: FakeSessionOptions,
        providers: Sequence[tuple[str, dict[str, str]]],
        enable_fallback: int = 1,
    ) -> None:
        assert not enable_fallback, "onnxruntime would try other providers by itself"
        self.graph = "" if isinstance(path_or_bytes, bytes) else path_or_bytes.rpartition("/")[2][:-5]
        self.module, self.entries = module, dict(sess_options.entries)
        self.threads = sess_options.intra_op_num_threads, sess_options.inter_op_num_threads
        self.provider, self.options = providers[0]
        self.registered = [name for name, _ in providers]
        changed = 0 if isinstance(path_or_bytes, bytes) else Path(path_or_bytes).stat().st_mtime_ns
        self._real = _cpu_session(path_or_bytes, changed)
        self.get_inputs, self.get_outputs = self._real.get_inputs, self._real.get_outputs
        self.captured: dict[tuple[object, int], dict[str, Place]] = {}
        self.arenas: dict[tuple[object, tuple[Any, ...]], int] = {}
        self.nodes = sum(len(part.get_nodes()) for part in self._real.get_provider_graph_assignment_info())
        self._open()

    def __getattr__(self, name: str) -> Any:
        if name == "get_provider_graph_assignment_info" and not self.module.faults.placement_unknown:
            return self._assignment
        raise AttributeError(name)

    def get_providers(self) -> list[str]:
        return list(self.registered)

    def io_binding(self) -> FakeBinding:
        return FakeBinding(self)

    def run(self, names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
        """A run that copies and waits by itself."""
        self._fail_if_asked()
        return list(self._real.run(names, dict(feeds)))

    def run_with_iobinding(self, binding: FakeBinding, run_options: FakeRunOptions | None = None) -> None:
        assert binding.session is self, "a binding of another session"
        entries = {} if run_options is None else run_options.entries
        # onnxruntime's default is 0: without the option every run of a capturing session is one graph's.
        graph_id = int(entries.get("gpu_graph_id", "0")) if self._captures else -1
        self._fail_if_asked()
        # Captured graphs, like library handles, belong to the thread that made them.
        thread = self.module.thread()
        place = (thread, graph_id)
        replayed = place in self.captured
        if not replayed:
            # At least one run without capture comes first: it makes the memory for the results between nodes.
            self._grow_arena(thread, binding)
            self._enqueue(dict(binding.places))
        if graph_id != -1 and not replayed:
            if self.module.faults.capture_fails:
                raise Fail("[ONNXRuntimeError] : 1 : FAIL : CUDA failure 900: operation not permitted")
            self.captured[place] = dict(binding.places)
        if graph_id != -1:
            # A replay uses the addresses of its capture, whatever is bound by now.
            self._enqueue(self.captured[place])
        waits = entries.get("disable_synchronize_execution_providers", "0") != "1"
        # The TensorRT provider, and the CUDA provider before 1.28, wait after a replay whatever is asked.
        version = tuple(int(part) for part in self.module.version.split(".")[:2])
        waits = waits or (graph_id != -1 and (version < (1, 28) or self.provider == TENSORRT))
        launches = 1 if replayed else self.nodes + (graph_id != -1)
        self.module.runs.append(Run(self.graph, self._stream, graph_id, replayed, waits, thread, launches))

    def _grow_arena(self, thread: object, binding: FakeBinding) -> None:
        shapes = tuple(sorted((name, place.shape) for name, place in binding.places.items()))
        if (thread, shapes) in self.arenas:
            return
        nbytes = ARENA_SHARE * sum(place.extent[1] for place in binding.places.values())
        if not self.module.allocate(self, nbytes):
            raise RuntimeError(OUT_OF_MEMORY)
        self.arenas[thread, shapes] = nbytes

    @property
    def _stream(self) -> int:
        return int(self.options.get("user_compute_stream", "0"))

    @property
    def _captures(self) -> bool:
        return "1" in (self.options.get("enable_cuda_graph"), self.options.get("trt_cuda_graph_enable"))

    def _open(self) -> None:
        faults = self.module.faults
        # Since 1.26, in the process's log, whatever level the session has.
        if self.module.severity <= WARNING and "device_id" in self.options:
            print(NO_PLUGIN.format(self.provider, self.options["device_id"]), file=sys.stderr)
        strict = self.entries.get("session.disable_cpu_ep_fallback") == "1"
        if faults.silent_cpu:
            self.registered = [CPU]
        else:
            self.registered.append(CPU)
        if faults.no_capture and self._captures:
            raise Fail(NO_CAPTURE)
        if strict and any(part.ep_name == CPU for part in self._assignment()):
            raise Fail(LEFT_TO_THE_CPU)

    def _assignment(self) -> list[Any]:
        if "session.record_ep_graph_assignment_info" not in self.entries:
            raise Fail("[ONNXRuntimeError] : 1 : FAIL : Session configuration entry must be set to 1")
        parts: dict[str, list[Any]] = {}
        for node in (n for part in self._real.get_provider_graph_assignment_info() for n in part.get_nodes()):
            on_cpu = self.module.faults.silent_cpu or node.op_type in self.module.faults.cpu_ops
            parts.setdefault(CPU if on_cpu else self.provider, []).append(node)
        return [
            SimpleNamespace(ep_name=name, get_nodes=lambda nodes=nodes: nodes)
            for name, nodes in parts.items()
        ]

    def _fail_if_asked(self) -> None:
        if self.module.faults.no_kernel:
            raise Fail(NO_KERNEL)
        if self.graph and self.module.faults.run_fails:
            raise Fail(self.module.faults.run_fails)

    def _enqueue(self, places: Mapping[str, Place]) -> None:
        for tensor in (*self.get_inputs(), *self.get_outputs()):
            if tensor.name not in places:
                raise Fail(f"[ONNXRuntimeError] : 1 : FAIL : {tensor.name} is not bound")
        reads = [places[tensor.name].extent for tensor in self.get_inputs()]
        writes = [places[tensor.name].extent for tensor in self.get_outputs()]
        self.module.enqueue(self._stream, self.graph, reads, writes, lambda: self._compute(places))

    def _compute(self, places: Mapping[str, Place]) -> None:
        outputs = [place.array for place in places.values() if not place.is_input]

        def compute() -> list[np.ndarray]:
            real = self._real.io_binding()
            for name, place in places.items():
                bind = real.bind_input if place.is_input else real.bind_output
                bind(name, "cpu", 0, place.dtype, place.shape, place.pointer)
            self._real.run_with_iobinding(real)
            return outputs

        feeds = {name: place.array for name, place in places.items() if place.is_input}
        for array, result in zip(outputs, results_of(self._real, feeds, compute), strict=True):
            array[...] = result


@dataclass(frozen=True)
class Place:
    is_input: bool
    dtype: Any
    shape: tuple[int, ...]
    pointer: int

    @property
    def extent(self) -> Range:
        return self.pointer, int(np.prod(self.shape)) * np.dtype(self.dtype).itemsize

    @property
    def array(self) -> np.ndarray:
        """What lies there."""
        memory = (ctypes.c_uint8 * self.extent[1]).from_address(self.pointer)
        return np.frombuffer(memory, self.dtype).reshape(self.shape)


class FakeBinding:
    """An IOBinding of addresses on the GPU."""

    def __init__(self, session: FakeSession) -> None:
        self.session = session
        self.places: dict[str, Place] = {}

    def bind_input(self, *place: Any) -> None:
        """``place``: name, device type and index, element type, shape, address."""
        self._bind({tensor.name: tensor for tensor in self.session.get_inputs()}, True, *place)

    def bind_output(self, *place: Any) -> None:
        self._bind({tensor.name: tensor for tensor in self.session.get_outputs()}, False, *place)

    def _bind(
        self,
        tensors: Mapping[str, Any],
        is_input: bool,
        name: str,
        device_type: str,
        device_id: int,
        dtype: Any,
        shape: Sequence[int],
        pointer: int,
    ) -> None:
        real_dtype = {"tensor(float)": np.float32, "tensor(int64)": np.int64}
        if name not in tensors or real_dtype[tensors[name].type] is not dtype:
            raise InvalidArgument(f"[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : no {dtype} tensor {name}")
        assert device_type == "cuda"
        assert str(device_id) == self.session.options["device_id"], "memory of another GPU"
        self.places[name] = Place(is_input, dtype, tuple(shape), pointer)
