"""Layers of the engine that TensorRT's compiler makes of an ONNX graph, built without a GPU.

TensorRT-RTX has TensorRT's parser and fusing compiler, builds for a given compute capability without driver
or GPU, and stores the source of every attention kernel that it generates in the engine; the accumulator types
are read from that source. TensorRT may choose other kernels on a given GPU: this is an early check, the
comparison on the GPU is the final one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
import pytest

from efftam_ros.runtime.tensorrt.engine_set import ShapeRange
from efftam_ros.runtime.tensorrt.library import Library, MessageLog
from efftam_workshop.export.tensorrt.builder import allows_tf32, build_engine

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

    tf32: bool
    layers: tuple[Layer, ...]
    fused: tuple[FusedAttention, ...]
    softmax: Names

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


@dataclass(frozen=True)
class RtxLibrary(Library):
    """TensorRT-RTX, whose builder makes engines for a compute capability; ``lines`` of its verbose log."""

    capability: str
    lines: list[tuple[str, str]]

    def start(self, kind: str) -> Any:
        return _Targeted(super().start(kind), self)


class _Targeted:
    """A Builder whose configurations have a target, without which it needs a GPU."""

    def __init__(self, builder: Any, library: RtxLibrary) -> None:
        self._builder, self._library = builder, library

    def __getattr__(self, name: str) -> Any:
        return getattr(self._builder, name)

    def create_builder_config(self) -> Any:
        config = self._builder.create_builder_config()
        config.num_compute_capabilities = 1
        target = getattr(self._library.module.ComputeCapability, self._library.capability)
        assert config.set_compute_capability(target, 0)
        return config


def rtx_library(capability: str = "SM86") -> RtxLibrary:
    """Skips the test where TensorRT-RTX is not installed."""
    trt = pytest.importorskip("tensorrt_rtx_bindings", reason="scripts/setup_env --with-tests installs it")
    log, lines = MessageLog(), []

    class Log(trt.ILogger):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: Any, message: str) -> None:
            lines.append((severity.name, message))
            log.add(severity.name, message)

    # Its parser is that of TensorRT 11.
    return RtxLibrary(trt, (11, 0), log, Log(), capability, lines)


def build_report(
    model: onnx.ModelProto, capability: str = "SM86", profiles: Sequence[ShapeRange] = ()
) -> EngineReport:
    """Build ``model`` (weights loaded, under 2 GB) for a compute capability, as engines are; its layers.
    Raises as `build_engine` does."""
    library = rtx_library(capability)
    engine = build_engine(library, model, "fp16", profiles)
    layers = tuple(_layers(library.lines))
    softmax = tuple(node.name for node in model.graph.node if node.op_type == "Softmax")
    return EngineReport(allows_tf32(model), layers, tuple(_fused(layers, engine)), softmax)


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
