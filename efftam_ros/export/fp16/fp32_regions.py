"""Selects the nodes that stay in FP32 when a graph is converted to FP16."""

from __future__ import annotations

import onnx
from onnx import TensorProto

PRODUCTS = frozenset({"Conv", "ConvTranspose", "MatMul", "Gemm", "LayerNormalization"})
"""Operators worth running in FP16; FP32 regions end here."""

EXACT = frozenset(
    {
        *("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal", "Where"),
        *("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ArgMax"),
        *("Sigmoid", "Cast"),
        *("QuantizeLinear", "DequantizeLinear"),
    }
)
"""Comparisons, counts and scores: cheap, and counts exceed FP16's range (areas reach 262144 px^2 at side
512). Quantisation: at opset 17 its type is FP32."""

FLOAT_BORN = frozenset({"ConstantOfShape"})
"""Operators whose result type is an attribute."""

PERIODIC = frozenset({"Sin", "Cos"})
"""Everything upstream of these stays FP32: their arguments are coordinates, and FP16 has three decimal
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
    """Names of the nodes to keep in FP32; ``model`` must have its types inferred.

    These are the nodes in `EXACT` and what is computed from their results up to the next node in `PRODUCTS`,
    everything upstream of `PERIODIC`, and `MOVES` whose consumers all stay in FP32.
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
        consumers = [reader for name in node.output for reader in readers.get(name, [])]
        if node.op_type in MOVES and consumers and kept.issuperset(consumers):
            kept.add(node.name)
    return kept
