"""Graphs with enlarged attention scores, on which FP16 sums fail while FP32 sums hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from efftam_ros.core.errors import InputError
from efftam_workshop.agreement.compare import deviation
from efftam_workshop.agreement.runners import Runner
from efftam_workshop.export.fp16.attention import AttentionBlock, attentions
from efftam_workshop.export.fp16.convert import to_fp16
from efftam_workshop.export.fp16.divergence import DIVERGED
from support.fp16_interpreter import LiteralGraph

MOST = 2.0**14


@dataclass(frozen=True)
class Stressed:
    """An FP32 graph whose attention ``score`` (the product's node) has its queries multiplied by ``factor``,
    and the largest relative deviation of its outputs in the all-FP16 form."""

    model: onnx.ModelProto
    score: str
    factor: float
    all_fp16: float


def enlarged(model: onnx.ModelProto, attention: AttentionBlock, factor: float) -> onnx.ModelProto:
    """A copy of an FP32 graph (`fp16.plain_graph`) with one attention's scores ``factor`` times as large, by
    way of the constant that scales its queries or its keys. Raises InputError where there is none."""
    if not attention.scale:
        raise InputError(f"attention {attention.score} has no constant scale; choose another to enlarge")
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    scale = next(node for node in copy.graph.node if node.name == attention.scale)
    if scale.op_type == "Gemm":
        for attribute in scale.attribute:
            if attribute.name in ("alpha", "beta"):
                attribute.f *= factor
        return copy
    weights = {tensor.name: tensor for tensor in copy.graph.initializer}
    position, name = next((i, name) for i, name in enumerate(scale.input) if name in weights)
    value = numpy_helper.to_array(weights[name])
    value = np.asarray(value * factor if scale.op_type == "Mul" else value / factor, np.float32)
    scale.input[position] = f"{attention.scale}/enlarged"  # other attentions share the constant
    copy.graph.initializer.append(numpy_helper.from_array(value, scale.input[position]))
    return copy


def enlarge_until_wrong(
    model: onnx.ModelProto,
    name: str,
    inputs: Mapping[str, NDArray[Any]],
    attention: AttentionBlock | None = None,
    limit: float = DIVERGED,
) -> Stressed:
    """Double the scores of one attention (the graph's first by default) until the fused all-FP16 form of the
    graph deviates by more than ``limit`` in some output, or is not finite.

    Raises InputError when it never does up to a factor of 2^14: such a graph can't show the fault.
    """
    attention = attention or attentions(model)[0]
    factor = 1.0
    while factor <= MOST:
        candidate = enlarged(model, attention, factor)
        worst = worst_deviation(candidate, name, inputs, "all_fp16")
        if worst > limit:
            return Stressed(candidate, attention.score, factor, worst)
        factor *= 2
    raise InputError(
        f"{name}: scores of {attention.score} enlarged {MOST:g} times still fit FP16 sums;"
        " choose another attention or larger inputs"
    )


def worst_deviation(
    model: onnx.ModelProto, name: str, inputs: Mapping[str, NDArray[Any]], form: str, fused: bool = True
) -> float:
    """The largest relative deviation among the outputs of a graph in FP16 with attentions of this form.

    ``fused``: attentions compute as TensorRT's fused kernels do (`fp16_interpreter.LiteralGraph`).
    """
    fp16: Runner = LiteralGraph(to_fp16(model, name, form), fused)
    got, wanted = fp16(inputs), LiteralGraph(model)(inputs)
    return max(deviation(reference, got[output]) for output, reference in wanted.items())
