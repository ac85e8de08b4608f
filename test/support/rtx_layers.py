"""Layers of the engine that TensorRT's compiler makes of an ONNX graph, built without a GPU.

TensorRT-RTX has TensorRT's parser and fusing compiler, builds for a given compute capability without driver
or GPU, and stores the source of every attention kernel that it generates in the engine; the accumulator types
are read from that source. TensorRT may choose other kernels on a given GPU: this is an early check, the
comparison on the GPU is the final one.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import onnx

from efftam_ros.runtime.tensorrt.engine_set import BuildOptions
from efftam_ros.runtime.tensorrt.library import RTX, Library, load_library
from efftam_workshop.export.tensorrt.builder import allowed_options, build_graph

CAPABILITIES = ("SM80", "SM86", "SM89", "SM120")
PRODUCTS = ("gemm", "correlation", "runtime_fusion")
"""Kinds of layers that multiply; the others only move, add and normalise."""

_LAYER = re.compile(r"Name: (?P<name>.*?), LayerType: (?P<kind>[^,]*), (?P<rest>.*)")
_ONNX_NODE = re.compile(r"\[ONNX Layer: ([^\]]*)\]")
_TACTIC = re.compile(r"TacticName: ([^,]*),")
_TYPE = re.compile(r"Datatype: (\w+)")
_KERNEL = re.compile(
    rb"Kernel_traits_v2\w*<\s*fmha::(?P<score>\w+),\s*fmha::(?P<value>\w+),"
    rb"(?:(?!Kernel_traits_v2).){0,60000}?__global__ void (?P<entry>\w+)\(",
    re.DOTALL,
)
Names = tuple[str, ...]
_SUMS = (("hmma_fp16_traits", "FP16"), ("hmma_fp32_traits", "FP32"), ("bf16_traits", "FP32"))


@dataclass(frozen=True)
class Layer:
    """One layer of a built engine; ``inputs`` and ``outputs`` are data types, ``nodes`` the ONNX nodes in
    it."""

    name: str
    kind: str
    tactic: str
    inputs: Names
    outputs: Names
    nodes: Names


@dataclass(frozen=True)
class FusedAttention:
    """A fused attention kernel. ``score_sums``, ``value_sums``: what Q.K^T and P.V are summed in ("FP16",
    "FP32", or the kernel's own word where it is neither)."""

    layer: str
    nodes: Names
    score_sums: str
    value_sums: str


@dataclass(frozen=True)
class EngineReport:
    """An engine built ahead of time. ``softmax``: Softmax nodes of the graph; ``tf32``: whether it may use
    TF32."""

    capability: str
    version: str
    tf32: bool
    layers: tuple[Layer, ...]
    fused: tuple[FusedAttention, ...]
    softmax: Names
    engine_bytes: int
    seconds: float

    def unfused(self) -> list[str]:
        """Softmax nodes that no fused attention kernel contains."""
        inside = {node for fused in self.fused for node in fused.nodes}
        return [name for name in self.softmax if name not in inside]


def fused_with_fp16_sums(report: EngineReport) -> list[FusedAttention]:
    """The fused attentions that don't provably sum Q.K^T in FP32."""
    return [fused for fused in report.fused if fused.score_sums != "FP32"]


def plain_fp32_products(report: EngineReport) -> list[Layer]:
    """The layers that multiply FP32 by FP32 without tensor cores, because TF32 is not allowed."""
    return [] if report.tf32 else float_products(report)


def float_products(report: EngineReport) -> list[Layer]:
    """The layers that multiply FP32 by FP32, with TF32 or without."""
    return [
        layer
        for layer in report.layers
        if layer.kind in PRODUCTS and len(layer.inputs) > 1 and set(layer.inputs) == {"Float"}
    ]


def int8_nodes(report: EngineReport, nodes: Collection[str]) -> set[str]:
    """Those of these ONNX products that are in a layer that multiplies INT8 by INT8."""
    return {
        name
        for layer in report.layers
        if layer.kind in PRODUCTS and layer.inputs[:1] == ("Int8",)
        for name in layer.nodes
        if name in nodes
    }


def build_report(
    model: onnx.ModelProto, capability: str = "SM86", options: BuildOptions | None = None
) -> EngineReport:
    """Build ``model`` (weights loaded, under 2 GB) for a compute capability, as engines are; its layers.

    ``options``: those of the module's engine. Raises as `build_engine` does, BackendError without
    TensorRT-RTX.
    """
    library = load_library(RTX)
    log = _verbose_logger(library)
    options = replace(options or BuildOptions(), target=capability)
    start = time.perf_counter()
    engine = build_graph(replace(library, logger=log), model, options)
    seconds = time.perf_counter() - start
    layers = tuple(_layers(log.lines))
    softmax = tuple(node.name for node in model.graph.node if node.op_type == "Softmax")
    return EngineReport(
        capability,
        library.dotted,
        allowed_options(model, options).tf32,
        layers,
        tuple(_fused(layers, engine)),
        softmax,
        len(engine),
        seconds,
    )


def _verbose_logger(library: Library) -> Any:
    """A logger that keeps every line and passes warnings and errors on to the library's log."""

    class Log(library.module.ILogger):
        def __init__(self) -> None:
            library.module.ILogger.__init__(self)
            self.lines: list[tuple[str, str]] = []

        def log(self, severity: Any, message: str) -> None:
            self.lines.append((severity.name, message))
            library.log.add(severity.name, message)

    return Log()


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
