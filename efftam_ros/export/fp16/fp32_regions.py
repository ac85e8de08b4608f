"""Which nodes of a graph must compute in FP32 when the rest computes in FP16."""

from __future__ import annotations

import onnx
from onnx import TensorProto

PRODUCTS = frozenset({"Conv", "ConvTranspose", "MatMul", "Gemm", "LayerNormalization"})
"""What fp16 precision is for. FP32 regions end here."""

EXACT = frozenset(
    {
        *("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal", "Where"),
        *("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ArgMax"),
        *("Sigmoid", "Cast"),
    }
)
"""Decisions, counts and scores: cheap, few, and counts leave FP16's range (areas reach 262144 px^2 at side
512)."""

FLOAT_BORN = frozenset({"ConstantOfShape"})
"""Their type stands in an attribute."""

PERIODIC = frozenset({"Sin", "Cos"})
"""Everything that leads to these stays FP32: their phases are coordinates, of which FP16 keeps three
digits."""

MOVES = frozenset(
    {
        "Reshape",
        "Transpose",
        "Unsqueeze",
        "Squeeze",
        "Flatten",
        "Slice",
        "Split",
        "Concat",
        "Gather",
        "Expand",
    }
)


def float32_nodes(model: onnx.ModelProto) -> set[str]:
    """Names of the nodes to keep in FP32.

    Those in `EXACT`, what is computed from their results up to the next node in `PRODUCTS`, everything that
    leads to `PERIODIC`, and moves of data that only such nodes read. ``model`` has its types inferred.
    """
    graph = model.graph
    is_float = {
        info.name
        for info in (*graph.input, *graph.value_info, *graph.output)
        if info.type.tensor_type.elem_type == TensorProto.FLOAT
    }
    kept = {node.name for node in graph.node if node.op_type in FLOAT_BORN}
    exact_tensors: set[str] = set()
    for node in graph.node:
        inherits = node.op_type not in PRODUCTS | {"Softmax"} and set(node.input) & exact_tensors
        if node.op_type in EXACT | PERIODIC or inherits:
            kept.add(node.name)
            exact_tensors.update(set(node.output) & is_float)
    leading: set[str] = set()
    for node in reversed(graph.node):
        if node.op_type in PERIODIC or set(node.output) & leading:
            kept.add(node.name)
            leading.update(set(node.input) & is_float)
    readers: dict[str, list[str]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node.name)
    for node in reversed(graph.node):
        takers = [reader for name in node.output for reader in readers.get(name, [])]
        if node.op_type in MOVES and takers and kept.issuperset(takers):
            kept.add(node.name)
    return kept
