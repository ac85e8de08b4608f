"""TensorRT without a GPU: modules that have the names of one real version and compute with onnxruntime.

`make_fake` builds a module from the recorded interface of a version: other names do not exist, numbers are
refused where an enumeration is wanted, read-only properties stay so. Engines run late, on a `FakeGpu`, in its
memory.
"""

from __future__ import annotations

import ctypes
import gzip
import hashlib
import json
import math
import re
import types
import weakref
from collections.abc import Callable
from enum import IntEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from runtime.cuda.fake_cuda import FakeGpu, RefusedError
from support.graph_results import results_of

HERE = Path(__file__).parent
VERSIONS = tuple(
    sorted(
        path.name.removeprefix("tensorrt_api_").removesuffix(".json.gz") for path in HERE.glob("*.json.gz")
    )
)
MAGIC = b"fake engine\n"
PLAIN = ("ILogger", "IProgressMonitor", "IProfiler", "ITensor")
STEPS = 4
"""Of each of a build's two phases."""
SCRATCH_SHARE = 16
"""Working memory of an engine over the size of its tensors: about what memory attention of a large network
needs."""

_ORT_TYPES = {
    "tensor(float)": ("FLOAT", np.float32),
    "tensor(float16)": ("HALF", np.float16),
    "tensor(int64)": ("INT64", np.int64),
}


class AbuseError(AssertionError):
    """What the real library would punish with wrong numbers or a crash some time later."""


def make_fake(
    version: str,
    gpu: FakeGpu | None = None,
    gpu_name: str = "Fake GPU",
) -> Any:
    """A module like TensorRT's of a version in `VERSIONS`; its ``fake`` steers and watches it."""
    recorded = json.loads(gzip.decompress((HERE / f"tensorrt_api_{version}.json.gz").read_bytes()))
    module = types.ModuleType("tensorrt")
    module.__version__ = version
    control = Control(module, gpu, gpu_name)
    module.fake = control
    for name, members in recorded["enums"].items():
        holder: Any = module
        outer, _, inner = name.rpartition(".")
        enum = IntEnum(inner, members)
        if outer:
            holder = control.nested.setdefault(outer, {})
            holder[inner] = enum
        else:
            setattr(module, inner, enum)
    for name, api in recorded["classes"].items():
        setattr(module, name, _make_class(name, api, module, control))
    return module


class Control:
    """What happened to a fake, and what is to happen.

    ``faults``: names of calls that answer False or None, or "build", "context", "driver" (too old for this
    TensorRT). ``told``: calls of execution contexts, in order. ``gone``: what was destroyed, in order.
    ``first_runs``: contexts that have run. ``at_step``: called at each step of a build. Weights and working
    memory are taken from the memory of the GPU.
    """

    def __init__(self, module: Any, gpu: FakeGpu | None, gpu_name: str) -> None:
        self.module, self.gpu, self.gpu_name = module, gpu, gpu_name
        self.faults: set[str] = set()
        self.told: list[str] = []
        self.gone: list[str] = []
        self.built: list[dict[str, Any]] = []
        self.contexts_made = 0
        self.first_runs = 0
        self.at_step: Callable[[int], None] = lambda step: None
        self.nested: dict[str, dict[str, Any]] = {}

    @property
    def contexts_alive(self) -> int:
        return self.contexts_made - self.gone.count("context")

    def take(self, owner: Any, nbytes: int) -> bool:
        """Device memory that ``owner`` holds as long as it lives; False where there is too little."""
        return self.gpu is None or self.gpu.take(owner, nbytes)

    def refuse_old_driver(self, logger: Any) -> None:
        if "driver" in self.faults:
            self.say(logger, "ERROR", "CUDA initialization failure with error: 35")
            raise TypeError("pybind11::init(): factory function returned nullptr")

    def say(self, logger: Any, severity: str, text: str) -> None:
        logger.log(self.nested["ILogger"]["Severity"][severity], text)

    def fails(self, name: str, logger: Any) -> bool:
        if name in self.faults:
            self.say(logger, "ERROR", f"{name} was told to fail")
        return name in self.faults


def header_of(plan: bytes) -> dict[str, Any]:
    """What an engine was built from, and with."""
    return json.loads(plan[len(MAGIC) :].split(b"\n", 1)[0])


@lru_cache(maxsize=32)
def _session(model: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _numbers(shape: list[Any]) -> tuple[int, ...]:
    return tuple(axis if isinstance(axis, int) else -1 for axis in shape)


# The classes. A method or property that a version does not list is left out of that version's class.


class _Plain:
    """A class without calls of its own that are used; Python code derives from it."""

    def __init__(self) -> None:
        pass


class _Dims:
    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        self._shape = tuple(shape)

    def __len__(self) -> int:
        return len(self._shape)

    def __getitem__(self, index: int) -> int:
        return self._shape[index]


class _IHostMemory(np.ndarray):
    """Bytes behind Python's buffer protocol, with the one property that is used, nbytes."""


class _Builder:
    def __init__(self, logger: Any) -> None:
        self._require(logger, "ILogger")
        self._fake.refuse_old_driver(logger)
        self._logger = logger

    def create_network(self, flags: int = 0) -> Any:
        strongly = self._module.NetworkDefinitionCreationFlag.STRONGLY_TYPED
        always = self._module.__version__ >= "11"
        network = self._module.INetworkDefinition._make()
        network._strong = always or bool(flags >> int(strongly) & 1)
        network._logger = self._logger
        return network

    def create_builder_config(self) -> Any:
        config = self._module.IBuilderConfig._make()
        config._logger = self._logger
        return config

    def create_optimization_profile(self) -> Any:
        return self._module.IOptimizationProfile._make()

    def build_serialized_network(self, network: Any, config: Any) -> Any:
        fake, values = self._fake, config._values
        if network._parser is None or network._parser() is None:
            raise AbuseError("the parser, which holds the network's weights, was freed before the build")
        dynamic = {
            i.name: s
            for i, s in zip(network._session.get_inputs(), network._shapes(), strict=True)
            if -1 in s
        }
        profile = config._profiles[0] if config._profiles else {}
        if set(dynamic) - set(profile):
            fake.say(self._logger, "ERROR", "no optimization profile has been defined for a dynamic input")
            return None
        if not self._report(values.get("progress_monitor")):
            fake.say(self._logger, "ERROR", "BuildCanceled (Build canceled by user)")
            return None
        if fake.fails("build", self._logger):
            return None
        flag = self._module.BuilderFlag
        header = {
            "version": self._module.__version__,
            "gpu": fake.gpu_name,
            "strong": network._strong,
            "tf32": int(flag.TF32) in config._flags,
            "flags": sorted(f.name for f in flag if int(f) in config._flags),
            "aux": values.get("max_aux_streams", -1),
            "detailed": values.get("profiling_verbosity") == self._module.ProfilingVerbosity.DETAILED,
            "workspace": config._workspace,
            "profiles": profile,
            "reused_times": config._cache is not None and bool(config._cache._times),
        }
        if config._cache is not None:
            config._cache._times.append(hashlib.sha256(repr(network._model).encode()).hexdigest()[:8])
        fake.built.append(header)
        return self._module.IHostMemory._make(MAGIC + json.dumps(header).encode() + b"\n" + network._model)

    def _report(self, monitor: Any) -> bool:
        """As the real one: an exception is printed, and cancels."""
        if monitor is None:
            return True
        try:
            for phase, parent in (("Building engine", None), ("Timing tactics", "Building engine")):
                monitor.phase_start(phase, parent, STEPS)
                for step in range(STEPS):
                    self._fake.at_step(step)
                    if not monitor.step_complete(phase, step):
                        return False
                monitor.phase_finish(phase)
        except BaseException as error:
            print(f"[ERROR] Exception caught in step_complete(): {type(error).__name__}")
            return False
        return True


class _INetworkDefinition:
    def __init__(self) -> None:
        self._session: Any = None
        self._parser: Any = None
        self._model = b""

    def _shapes(self) -> list[tuple[int, ...]]:
        return [_numbers(tensor.shape) for tensor in self._session.get_inputs()]


class _OnnxParser:
    def __init__(self, network: Any, logger: Any) -> None:
        self._require(network, "INetworkDefinition")
        self._require(logger, "ILogger")
        self._network, self._logger = network, logger
        self._errors: list[str] = []

    def parse(self, model: bytes, path: str | None = None) -> bool:
        if "parse" in self._fake.faults:
            self._errors += ["In node 3 with operator: NonZeroish:\nUNSUPPORTED_NODE", "In node 7: too large"]
            return False
        if self._refuses_normalization(model):
            self._errors.append(
                "INetworkDefinition::setComputePrecision: Error Code 3: API Usage Error (strongly typed"
                " network rejects calls to setComputePrecision)"
            )
            return False
        try:
            self._network._session = _session(model)
        except Exception as error:
            self._errors.append(f"Failed to parse the ONNX model:\n{error}")
            return False
        self._network._parser, self._network._model = weakref.ref(self), model
        return True

    def _refuses_normalization(self, model: bytes) -> bool:
        """As onnx-tensorrt of 10.1, which sets the precision of the layer without asking; 10.6 asks."""
        version = tuple(map(int, self._module.__version__.split(".")[:2]))
        if version >= (10, 6) or not self._network._strong or b"LayerNormalization" not in model:
            return False
        return any(node.op_type == "LayerNormalization" for node in onnx.load_from_string(model).graph.node)

    def num_errors(self) -> int:
        return len(self._errors)

    def get_error(self, index: int) -> Any:
        return self._module.ParserError._make(self._errors[index])


class _ParserError:
    def __init__(self, text: str) -> None:
        self._text = text

    def desc(self) -> str:
        return self._text


class _IOptimizationProfile:
    def __init__(self) -> None:
        self._shapes: dict[str, list[list[int]]] = {}

    def set_shape(self, input: str, min: Any, opt: Any, max: Any) -> None:
        self._shapes[input] = [list(min), list(opt), list(max)]


class _ITimingCache:
    def __init__(self, home: str, times: list[str]) -> None:
        self._home, self._times = home, times

    def serialize(self) -> Any:
        data = json.dumps({"home": self._home, "times": self._times}).encode()
        return self._module.IHostMemory._make(data)


class _IBuilderConfig:
    def __init__(self) -> None:
        self._flags = {int(self._module.BuilderFlag.TF32)}
        self._profiles: list[dict[str, Any]] = []
        self._workspace: int | None = None
        self._cache: Any = None
        self._values: dict[str, Any] = {}

    def set_flag(self, flag: Any) -> None:
        self._flags.add(int(flag))

    def clear_flag(self, flag: Any) -> None:
        self._flags.discard(int(flag))

    def set_memory_pool_limit(self, pool: Any, pool_size: int) -> None:
        assert pool == self._module.MemoryPoolType.WORKSPACE
        self._workspace = pool_size

    def add_optimization_profile(self, profile: Any) -> int:
        if any(
            not a <= b <= c for shapes in profile._shapes.values() for a, b, c in zip(*shapes, strict=True)
        ):
            self._fake.say(self._logger, "ERROR", "ensure that the profiles satisfy MIN<=OPT<=MAX")
            return -1
        if self._fake.fails("profile", self._logger):
            return -1
        self._profiles.append(profile._shapes)
        return len(self._profiles) - 1

    def create_timing_cache(self, serialized_timing_cache: bytes) -> Any:
        home = f"{self._module.__version__} {self._fake.gpu_name}"
        if not serialized_timing_cache:
            return self._module.ITimingCache._make(home, [])
        try:
            entry = json.loads(serialized_timing_cache)
        except ValueError:
            self._fake.say(
                self._logger, "WARNING", "Failed to deserialize timing cache. Returning an empty one."
            )
            return self._module.ITimingCache._make(home, [])
        return self._module.ITimingCache._make(entry["home"], entry["times"])

    def set_timing_cache(self, cache: Any, ignore_mismatch: bool) -> bool:
        if cache._home != f"{self._module.__version__} {self._fake.gpu_name}" and not ignore_mismatch:
            return False
        self._cache = cache
        return True

    def get_timing_cache(self) -> Any:
        return self._cache


class _Runtime:
    def __init__(self, logger: Any) -> None:
        self._require(logger, "ILogger")
        self._fake.refuse_old_driver(logger)
        self._logger = logger
        weakref.finalize(self, self._fake.gone.append, "runtime")

    def deserialize_cuda_engine(self, serialized_engine: bytes) -> Any:
        fake, plan = self._fake, bytes(serialized_engine)
        header = header_of(plan) if plan.startswith(MAGIC) else {}
        if header.get("version") != self._module.__version__:
            built_by = header.get("version", "something else")
            fake.say(self._logger, "ERROR", f"The engine plan file is not compatible: built by {built_by}")
            return None
        if header["gpu"] != fake.gpu_name:
            fake.say(self._logger, "ERROR", f"The engine is for {header['gpu']}")
            return None
        model = plan[len(MAGIC) :].split(b"\n", 1)[1]
        engine = self._module.ICudaEngine._make(weakref.ref(self), _session(model), header, self._logger)
        if not fake.take(engine, len(plan)):
            fake.say(self._logger, "ERROR", "Requested amount of GPU memory could not be allocated")
            return None
        return engine


class _ICudaEngine:
    def __init__(self, runtime: Any, session: Any, header: dict[str, Any], logger: Any) -> None:
        self._runtime, self._session, self._header, self._logger = runtime, session, header, logger
        self._shapes_of: dict[Any, dict[str, tuple[int, ...]]] = {}
        self._work_name = f"TensorRT {session.get_modelmeta().graph_name}"
        self._inputs = {tensor.name: tensor for tensor in session.get_inputs()}
        self._tensors = {**self._inputs, **{tensor.name: tensor for tensor in session.get_outputs()}}
        weakref.finalize(self, self._fake.gone.append, "engine")

    def num_io_tensors(self) -> int:
        return len(self._tensors)

    def get_tensor_name(self, index: int) -> str:
        return list(self._tensors)[index]

    def get_tensor_mode(self, name: str) -> Any:
        mode = self._module.TensorIOMode
        return mode.INPUT if name in self._inputs else mode.OUTPUT

    def get_tensor_dtype(self, name: str) -> Any:
        return self._module.DataType[_ORT_TYPES[self._tensors[name].type][0]]

    def get_tensor_shape(self, name: str) -> Any:
        return self._module.Dims(_numbers(self._tensors[name].shape))

    def get_tensor_location(self, name: str) -> Any:
        location = self._module.TensorLocation
        return location.HOST if f"host {name}" in self._fake.faults else location.DEVICE

    def device_memory_size(self) -> int:
        return self._scratch_bytes()

    def device_memory_size_v2(self) -> int:
        return self._scratch_bytes()

    def _scratch_bytes(self) -> int:
        """For the largest shapes of the profile."""
        total = 0
        for name, tensor in self._tensors.items():
            largest = self._header["profiles"].get(name, [_numbers(tensor.shape)])[-1]
            total += math.prod(abs(axis) for axis in largest) * _ORT_TYPES[tensor.type][1]().itemsize
        return SCRATCH_SHARE * total

    def get_engine_stat(self, stat: Any) -> int:
        assert stat == self._module.EngineStat.TOTAL_WEIGHTS_SIZE
        return 5_000_000

    def create_execution_context(self, strategy: Any = None) -> Any:
        if self._runtime() is None:
            raise AbuseError("the Runtime was destroyed before its engine")
        if strategy != self._module.ExecutionContextAllocationStrategy.USER_MANAGED:
            raise AbuseError("a context with working memory of its own")
        if self._fake.fails("context", self._logger):
            return None
        return self._module.IExecutionContext._make(weakref.ref(self))

    def create_engine_inspector(self) -> Any:
        return self._module.EngineInspector._make(self)


class _EngineInspector:
    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def get_engine_information(self, format: Any) -> str:
        assert format == self._module.LayerInformationFormat.JSON

        def described(name: str) -> dict[str, Any]:
            return {"Name": name, "Format/Datatype": self._engine.get_tensor_dtype(name).name}

        inputs = [described(name) for name in self._engine._inputs]
        outputs = [described(name) for name in self._engine._tensors if name not in self._engine._inputs]
        whole = {"Name": "whole_graph", "LayerType": "fused", "Inputs": inputs, "Outputs": outputs}
        layers: list[Any] = [whole] if self._engine._header["detailed"] else [whole["Name"]]
        return json.dumps({"Layers": layers, "Bindings": list(self._engine._tensors)})


class _IExecutionContext:
    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._values: dict[str, Any] = {}
        self._scratch: tuple[int, int] | None = None
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._addresses: dict[str, int] = {}
        self._ready: Any = None
        self._fake.contexts_made += 1
        weakref.finalize(self, self._fake.gone.append, "context")

    def set_device_memory(self, memory: int, size: int) -> None:
        self._scratch = (memory, size)

    def _scratch_range(self) -> tuple[int, int] | None:
        """Address and size of the memory that its user gave it; in 10.0 the address alone is given."""
        needed = self._engine()._scratch_bytes()
        if "device_memory" in self._values:
            return self._values["device_memory"], needed
        return self._scratch

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        self._fake.told.append(f"set_input_shape {name}")
        engine = self._engine()
        static = _numbers(engine._inputs[name].shape)
        lowest, _, highest = engine._header["profiles"].get(name, [static] * 3)
        allowed = len(shape) == len(static) and all(
            a <= s <= b for a, s, b in zip(lowest, shape, highest, strict=True)
        )
        if not allowed:
            self._fake.say(engine._logger, "ERROR", f"{name} {shape} is outside its profile")
        if not allowed or self._fake.fails("set_input_shape", engine._logger):
            return False
        self._shapes[name] = tuple(shape)
        return True

    def set_tensor_address(self, name: str, memory: int) -> bool:
        self._fake.told.append(f"set_tensor_address {name}")
        engine = self._engine()
        if name not in engine._tensors or self._fake.fails("set_tensor_address", engine._logger):
            return False
        self._addresses[name] = memory
        return True

    def infer_shapes(self) -> list[str]:
        self._fake.told.append("infer_shapes")
        if "infer_shapes" in self._fake.faults:
            if self._module.__version__.startswith("10.3"):
                raise RuntimeError("inferShapes: error in shape inference")
            return ["points"]
        return [name for name in self._engine()._inputs if -1 in self._input_shape(name)]

    def get_tensor_shape(self, name: str) -> Any:
        self._fake.told.append(f"get_tensor_shape {name}")
        engine = self._engine()
        if name in engine._inputs:
            return self._module.Dims(self._input_shape(name))
        return self._module.Dims(self._output_shapes()[name])

    def execute_async_v3(self, stream_handle: int) -> bool:
        self._fake.told.append("execute_async_v3")
        fake, engine = self._fake, self._engine()
        if engine is None or engine._runtime() is None:
            raise AbuseError("the engine or its Runtime was destroyed before a context")
        wrong = ""
        if set(engine._tensors) - set(self._addresses):
            wrong = "an address is missing"
        elif any(address % 256 for address in self._addresses.values()):
            wrong = "an address is misaligned"
        elif self._shapes_missing():
            wrong = "an input shape is missing"
        scratch = self._scratch_range()
        if scratch is None or scratch[1] < engine._scratch_bytes():
            wrong = "the device memory of the context was not set, or is too small"
        elif scratch[0] % 256:
            wrong = "the device memory of the context is misaligned"
        capturing = stream_handle in fake.gpu.captures
        if not wrong and capturing and self._ready != self._now():
            wrong = "allocation while a stream is captured; run once before"
        if not wrong and capturing and "capture" in fake.faults:
            wrong = "Cask execution is not permitted while a stream is captured"
        if wrong:
            fake.say(engine._logger, "ERROR", wrong)
        if wrong or fake.fails("execute_async_v3", engine._logger):
            return False
        fake.first_runs += self._ready is None
        self._ready = self._now()
        ranges = self._ranges()
        addresses, shapes = dict(self._addresses), {name: self._input_shape(name) for name in engine._inputs}
        alive, session = weakref.ref(self), engine._session

        def compute() -> None:
            if alive() is None:
                raise AbuseError("an execution context was destroyed while its work was still to run")
            feeds = {n: _array(addresses[n], session_type(session, n), s).copy() for n, s in shapes.items()}
            outputs = [tensor.name for tensor in session.get_outputs()]
            results = results_of(session, feeds, lambda: session.run(outputs, feeds))
            for name, result in zip(outputs, results, strict=True):
                _array(addresses[name], result.dtype, result.shape)[...] = result

        reads = [ranges[name] for name in engine._inputs]
        writes = [ranges[name] for name in engine._tensors if name not in engine._inputs]
        writes.append((scratch[0], engine._scratch_bytes()))
        try:
            fake.gpu.enqueue(stream_handle, engine._work_name, reads, writes, compute)
        except RefusedError as refusal:
            fake.say(engine._logger, "ERROR", f"CUDA error {refusal.code}")
            return False
        if self._values.get("profiler") is not None:  # then a run waits, and nothing can be captured
            fake.gpu.scheduler.wait_for_stream(stream_handle)
            self._values["profiler"].report_layer_time(engine._work_name, 0.25)
        return True

    def _shapes_missing(self) -> bool:
        return any(-1 in self._input_shape(name) for name in self._engine()._inputs)

    def _now(self) -> Any:
        return dict(self._addresses), dict(self._shapes), self._scratch_range()

    def _input_shape(self, name: str) -> tuple[int, ...]:
        return self._shapes.get(name, _numbers(self._engine()._inputs[name].shape))

    def _output_shapes(self) -> dict[str, tuple[int, ...]]:
        """By computing once for these input shapes."""
        engine = self._engine()
        shapes = {name: self._input_shape(name) for name in engine._inputs}
        key = tuple(shapes.items())
        if key not in engine._shapes_of:
            feeds = {n: np.zeros(s, session_type(engine._session, n)) for n, s in shapes.items()}
            names = [tensor.name for tensor in engine._session.get_outputs()]
            results = engine._session.run(names, feeds)
            engine._shapes_of[key] = {n: r.shape for n, r in zip(names, results, strict=True)}
        return engine._shapes_of[key]

    def _ranges(self) -> dict[str, tuple[int, int]]:
        engine = self._engine()
        shapes = {**self._output_shapes(), **{name: self._input_shape(name) for name in engine._inputs}}
        return {
            name: (
                self._addresses[name],
                math.prod(shape) * _ORT_TYPES[engine._tensors[name].type][1]().itemsize,
            )
            for name, shape in shapes.items()
        }


def session_type(session: Any, name: str) -> Any:
    return next(_ORT_TYPES[tensor.type][1] for tensor in session.get_inputs() if tensor.name == name)


def _array(address: int, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    nbytes = math.prod(shape) * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_uint8 * nbytes).from_address(address), dtype).reshape(shape)


# Making a version's classes of them.


def _make_class(name: str, api: dict[str, Any], module: Any, control: Control) -> Any:
    if name == "IHostMemory":
        return type(name, (_IHostMemory,), {"_make": classmethod(_make)})
    source = vars(_Plain if name in PLAIN else globals()[f"_{name}"])
    names: dict[str, Any] = {
        key: value
        for key, value in source.items()
        if key.startswith("_") and key not in ("__dict__", "__weakref__", "__doc__")
    }
    for method, signatures in api["methods"].items():
        function = source.get(method, _not_modelled(name, method))
        names[method] = (
            function if method.startswith("__") else _checked(method, function, signatures, module)
        )
    for property_, access in api["properties"].items():
        if access == "static":
            continue
        names[property_] = _make_property(property_, access, source.get(property_))
    names |= control.nested.get(name, {})
    names |= {"_module": module, "_fake": control, "_make": classmethod(_make), "_require": _require}
    # Python's own subclasses (loggers, monitors) may have what they like, the library's objects may not.
    if name not in ("ILogger", "IProgressMonitor", "IProfiler"):
        names["__setattr__"] = _refuse_unknown(api["properties"])
    return type(name, (), names)


def _make(cls: Any, *args: Any) -> Any:
    return np.frombuffer(args[0], np.uint8).view(cls) if issubclass(cls, np.ndarray) else cls(*args)


def _require(self: Any, value: Any, name: str) -> None:
    if not isinstance(value, getattr(self._module, name)):
        raise TypeError(f"{type(self).__name__}: incompatible constructor arguments, {name} is wanted")


def _refuse_unknown(properties: dict[str, str]) -> Callable[[Any, str, Any], None]:
    def set_attribute(self: Any, name: str, value: Any) -> None:
        if not name.startswith("_") and properties.get(name) != "rw":
            raise AttributeError(f"{type(self).__name__} has no {name} that can be set")
        object.__setattr__(self, name, value)

    return set_attribute


def _make_property(name: str, access: str, getter: Callable[[Any], Any] | None) -> property:
    def get(self: Any) -> Any:
        return getter(self) if getter is not None else self._values[name]

    def put(self: Any, value: Any) -> None:
        self._values[name] = value

    return property(get, put if access == "rw" else None)


def _not_modelled(name: str, method: str) -> Callable[..., Any]:
    def refuse(self: Any, *args: Any) -> Any:
        raise NotImplementedError(f"the fake does not model {name}.{method}")

    return refuse


def _checked(
    method: str, function: Callable[..., Any], signatures: list[str], module: Any
) -> Callable[..., Any]:
    """``function`` for arguments that fit one of the recorded signatures."""
    kinds = []
    for signature in signatures:
        inside = signature[1 : signature.rindex(")")]
        parameters = re.findall(r"(\w+): ([^,=]+?)(\s*=[^,]*)?(?:,|$)", inside)
        kinds.append([(kind.split("::")[-1].strip(), bool(default)) for _, kind, default in parameters])

    def call(self: Any, *args: Any) -> Any:
        for wanted in kinds:
            needed = sum(not default for _, default in wanted)
            if needed <= len(args) <= len(wanted):
                converted = [_fit(a, kind, module) for a, (kind, _) in zip(args, wanted, strict=False)]
                if all(fits for fits, _ in converted):
                    return function(self, *[value for _, value in converted])
        raise TypeError(f"{method}(): incompatible function arguments {args!r}, supported are {signatures}")

    return call


def _fit(value: Any, kind: str, module: Any) -> tuple[bool, Any]:
    """Whether pybind would take the value for this kind of parameter, and as what."""
    if kind == "int":
        return isinstance(value, int) and not isinstance(value, IntEnum), value
    if kind == "SupportsInt":
        return hasattr(value, "__int__"), int(value) if hasattr(value, "__int__") else value
    if kind in ("str", "tuple", "list", "bool"):
        return isinstance(value, {"str": str, "tuple": tuple, "list": list, "bool": bool}[kind]), value
    if kind in ("buffer", "typing_extensions.Buffer"):
        return isinstance(value, bytes | bytearray | memoryview), value
    if kind == "Dims":
        return isinstance(value, tuple | list | module.Dims), tuple(value) if hasattr(
            value, "__len__"
        ) else value
    known = getattr(module, kind, None)
    return known is None or isinstance(value, known), value
