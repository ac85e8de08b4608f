"""Selects the nodes that stay in FP32 when a graph becomes FP16, and finds those that TF32 would change.

TF32 has FP32's exponent and 10 bits of its mantissa. A value that was FP16 is exact in TF32: its mantissa has
10 bits too, and its exponent is smaller. A product of two such factors is therefore the same in TF32, which
is several times faster on tensor cores.
"""

from __future__ import annotations

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from efftam_workshop.export.fp16.attention import MOVES, GraphIndex

PRODUCTS = frozenset({"Conv", "ConvTranspose", "MatMul", "Gemm", "LayerNormalization"})
"""Operators that are much faster in FP16. A region of FP32 nodes ends before them."""

EXACT = frozenset(
    {
        *("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal", "Where"),
        *("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ArgMax"),
        *("Sigmoid", "Cast"),
        *("QuantizeLinear", "DequantizeLinear"),
    }
)
"""Operators that stay in FP32: comparisons, counts, scores and quantisation.

They cost little time. Counts exceed the range of FP16: an area reaches 262144 px^2 at side 512. The scales of
quantisation are FP32.
"""

FLOAT_BORN = frozenset({"ConstantOfShape"})
"""Operators whose result type is given by an attribute, not by the inputs."""

PERIODIC = frozenset({"Sin", "Cos"})
"""Operators whose inputs are computed in FP32: they are coordinates, and FP16 has only three digits."""


def float32_nodes(model: onnx.ModelProto) -> set[str]:
    """Return the names of the nodes to keep in FP32; ``model`` must have its types inferred.

    These are: the nodes of `FLOAT_BORN` and `EXACT`; the nodes after one of `EXACT` or `PERIODIC`, up to the
    next Softmax or node of `PRODUCTS`; all nodes from which the inputs of `PERIODIC` are computed; and nodes
    of `MOVES` whose consumers all stay in FP32.
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


MATRIX_PRODUCTS = frozenset({"Conv", "ConvTranspose", "MatMul", "Gemm"})
"""Operators that TensorRT may compute in TF32; their factors are the inputs 0 and 1."""

_DROPPED_BITS = 13


def round_to_tf32(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the nearest TF32 values as float32, ties to even; infinities stay infinite and NaN stays NaN."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    last_kept = (bits >> _DROPPED_BITS) & 1
    rounded = (bits + (np.uint32((1 << (_DROPPED_BITS - 1)) - 1) + last_kept)) & ~np.uint32(
        (1 << _DROPPED_BITS) - 1
    )
    kept = np.where(np.isfinite(values), rounded, bits)
    return kept.astype(np.uint32).view(np.float32).reshape(values.shape)


def inexact_products(model: onnx.ModelProto) -> list[str]:
    """Return the names of the FP32 products that TF32 would change, in graph order.

    Such a product has a factor that TF32 can't represent exactly. Exact are values converted from FP16, also
    if they were moved afterwards, and constants with few enough bits. ``model`` must have its weights loaded.
    An empty list allows TF32 for the whole graph.
    """
    index = GraphIndex(onnx.shape_inference.infer_shapes(model))
    weights = {tensor.name: tensor for tensor in model.graph.initializer}

    def is_type(name: str, wanted: int, unknown: bool) -> bool:
        kind = (
            weights[name].data_type if name in weights else getattr(index.types.get(name), "elem_type", None)
        )
        return unknown if kind is None else kind == wanted

    def is_exact(name: str) -> bool:
        if name in weights:
            value = numpy_helper.to_array(weights[name])
            return value.dtype != np.float32 or np.array_equal(value, round_to_tf32(value))
        node = index.producer.get(name)
        if node is None:
            return not is_type(name, TensorProto.FLOAT, unknown=True)
        if node.op_type == "Cast":
            return is_type(node.input[0], TensorProto.FLOAT16, unknown=False)
        data = node.input if node.op_type == "Concat" else node.input[:1]
        return node.op_type in MOVES and all(map(is_exact, data))

    return [
        node.name
        for node in model.graph.node
        if node.op_type in MATRIX_PRODUCTS
        and is_type(node.output[0], TensorProto.FLOAT, unknown=True)
        and not all(map(is_exact, node.input[:2]))
    ]
