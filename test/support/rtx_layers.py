"""What TensorRT's compiler makes of an ONNX graph: an engine for a named GPU, built without one, and its
layers.

TensorRT-RTX has TensorRT's parser and fusing compiler, needs neither driver nor GPU to build for a named
compute capability, and leaves the source of every attention kernel it generated in the engine, so that what a
kernel sums in can be read. Full TensorRT may choose otherwise on a given GPU: this is an early check, the
gate on the GPU the proof.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import onnx

from efftam_ros.core.errors import BackendError, InputError

MODULES = ("tensorrt_rtx", "tensorrt_rtx_bindings")
INSTALL = "pip install --no-deps tensorrt-rtx-cu13-bindings==1.7.1.116 tensorrt-rtx-cu13-libs==1.7.1.116"
CAPABILITIES = ("SM80", "SM86", "SM89", "SM120")

_LAYER = re.compile(r"Name: (?P<name>.*?), LayerType: (?P<kind>[^,]*), (?P<rest>.*)")
_ONNX_NODE = re.compile(r"\[ONNX Layer: ([^\]]*)\]")
_TACTIC = re.compile(r"TacticName: ([^,]*),")
_TYPE = re.compile(r"Datatype: (\w+)")
_KERNEL = re.compile(
    rb"Kernel_traits_v2\w*<\s*fmha::(?P<score>\w+),\s*fmha::(?P<value>\w+),"
    rb"(?:(?!Kernel_traits_v2).){0,60000}?__global__ void (?P<entry>\w+)\(",
    re.DOTALL,
)
_SUMS = (("hmma_fp16_traits", "FP16"), ("hmma_fp32_traits", "FP32"), ("bf16_traits", "FP32"))


@dataclass(frozen=True)
class Layer:
    """One layer of a built engine; ``inputs`` and ``outputs`` are data types, ``nodes`` the ONNX nodes in
    it."""

    name: str
    kind: str
    tactic: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class FusedAttention:
    """A fused attention kernel. ``score_sums``, ``value_sums``: what Q.K^T and P.V are summed in ("FP16",
    "FP32", or the kernel's own word where it is neither)."""

    layer: str
    nodes: tuple[str, ...]
    score_sums: str
    value_sums: str


@dataclass(frozen=True)
class EngineReport:
    """An engine built ahead of time. ``softmax``: Softmax nodes of the graph."""

    capability: str
    version: str
    layers: tuple[Layer, ...]
    fused: tuple[FusedAttention, ...]
    softmax: tuple[str, ...]
    engine_bytes: int
    seconds: float

    def unfused(self) -> list[str]:
        """Softmax nodes that no fused attention kernel contains."""
        inside = {node for fused in self.fused for node in fused.nodes}
        return [name for name in self.softmax if name not in inside]


def fused_with_fp16_sums(report: EngineReport) -> list[FusedAttention]:
    """The fused attentions that don't provably sum Q.K^T in FP32."""
    return [fused for fused in report.fused if fused.score_sums != "FP32"]


def load_rtx() -> ModuleType:
    """TensorRT-RTX's Python module. Raises BackendError when it is not installed."""
    for name in MODULES:
        if importlib.util.find_spec(name) is not None:
            return importlib.import_module(name)
    raise BackendError("TensorRT-RTX is not installed", INSTALL)


def build_report(
    model: onnx.ModelProto, capability: str = "SM86", shapes: Mapping[str, Sequence[int]] | None = None
) -> EngineReport:
    """Build ``model`` (weights loaded, under 2 GB) for a compute capability and read what it became.

    ``shapes``: sizes of inputs with dynamic axes. Raises InputError naming the parser's or builder's
    complaint, an unknown capability, an input without a size; BackendError without TensorRT-RTX.
    """
    rtx = load_rtx()
    if not capability.startswith("SM") or capability not in rtx.ComputeCapability.__members__:
        known = ", ".join(name for name in rtx.ComputeCapability.__members__ if name.startswith("SM"))
        raise InputError(f"compute capability {capability} is unknown to TensorRT-RTX; it knows {known}")
    log = _logger(rtx)
    start = time.perf_counter()
    engine = _build(rtx, log, model, capability, shapes or {})
    seconds = time.perf_counter() - start
    layers = tuple(_layers(log.lines))
    softmax = tuple(node.name for node in model.graph.node if node.op_type == "Softmax")
    return EngineReport(
        capability, rtx.__version__, layers, tuple(_fused(layers, engine)), softmax, len(engine), seconds
    )


def _logger(rtx: ModuleType) -> Any:
    class Log(rtx.ILogger):  # type: ignore[name-defined]
        def __init__(self) -> None:
            rtx.ILogger.__init__(self)
            self.lines: list[tuple[str, str]] = []

        def log(self, severity: Any, message: str) -> None:
            self.lines.append((severity.name, message))

    return Log()


def _build(
    rtx: ModuleType, log: Any, model: onnx.ModelProto, capability: str, shapes: Mapping[str, Sequence[int]]
) -> bytes:
    builder = rtx.Builder(log)
    network = builder.create_network(1 << int(rtx.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = rtx.OnnxParser(network, log)
    if not parser.parse(model.SerializeToString()):
        found = [parser.get_error(i) for i in range(parser.num_errors)]
        errors = [f"{error.node_operator()} {error.node_name()}: {error.desc()}" for error in found]
        raise InputError(f"TensorRT can't read the graph: {_line(errors)}; export it again")
    config = builder.create_builder_config()
    config.profiling_verbosity = rtx.ProfilingVerbosity.DETAILED
    config.num_compute_capabilities = 1
    if not config.set_compute_capability(getattr(rtx.ComputeCapability, capability), 0):
        raise InputError(f"TensorRT-RTX {rtx.__version__} can't build for {capability}")
    profile = builder.create_optimization_profile()
    dynamic = False
    for tensor in (network.get_input(i) for i in range(network.num_inputs)):
        if any(axis < 0 for axis in tensor.shape):
            if tensor.name not in shapes:
                raise InputError(f"input {tensor.name} has dynamic axes {tuple(tensor.shape)}; give its size")
            size = tuple(shapes[tensor.name])
            profile.set_shape(tensor.name, size, size, size)
            dynamic = True
    if dynamic:
        config.add_optimization_profile(profile)
    engine = builder.build_serialized_network(network, config)
    if engine is None:
        errors = [message for severity, message in log.lines if severity in ("ERROR", "INTERNAL_ERROR")]
        raise InputError(f"TensorRT can't build the graph for {capability}: {_line(errors)}")
    return bytes(memoryview(engine))


def _line(errors: Sequence[str]) -> str:
    return " ".join("; ".join(errors[:3]).split()) or "no reason given"


def _layers(lines: Sequence[tuple[str, str]]) -> list[Layer]:
    """The engine's layers from the verbose log, whose message about them starts with "Layers:"."""
    found = []
    for _, message in lines:
        if not message.startswith("Layers:"):
            continue
        for line in message.splitlines()[1:]:
            match = _LAYER.match(line.strip())
            if match is None:
                continue
            inputs, _, outputs = match["rest"].partition("Outputs:")
            tactic = _TACTIC.search(match["rest"])
            found.append(
                Layer(
                    name=match["name"],
                    kind=match["kind"],
                    tactic="" if tactic is None else tactic[1].strip(),
                    inputs=tuple(_TYPE.findall(inputs.partition("Constants:")[0])),
                    outputs=tuple(_TYPE.findall(outputs)),
                    nodes=tuple(_ONNX_NODE.findall(line)),
                )
            )
    return found


def _fused(layers: Sequence[Layer], engine: bytes) -> list[FusedAttention]:
    kernels = {match["entry"].decode(): match for match in _KERNEL.finditer(engine)}
    found = []
    for layer in layers:
        if "mha" not in f"{layer.name} {layer.tactic}".lower():
            continue
        kernel = kernels.get(layer.tactic)
        score, value = (
            ("unknown", "unknown") if kernel is None else (_sums(kernel["score"]), _sums(kernel["value"]))
        )
        found.append(FusedAttention(layer.name, layer.nodes, score, value))
    return found


def _sums(trait: bytes) -> str:
    """The type of an accumulator from the trait class in the kernel's source, after the GPU generation's
    name."""
    word = trait.decode()
    return next((sums for ending, sums in _SUMS if word.endswith(ending)), word)
