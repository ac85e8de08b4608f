"""Finds the FP32 products of a graph whose factors TF32 would round.

TF32 keeps FP32's exponent and 10 bits of its mantissa. A value that was FP16 fits: it has 10 bits and a
smaller exponent, so that a product of two such factors is the same with TF32, which is several times faster
on tensor cores.
"""

from __future__ import annotations

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from efftam_ros.export.fp16.attention import GraphIndex
from efftam_ros.export.fp16.fp32_regions import MOVES

MATRIX_PRODUCTS = frozenset({"Conv", "ConvTranspose", "MatMul", "Gemm"})
"""Operators that TensorRT may compute in TF32, with their factors in inputs 0 and 1."""

_DROPPED_BITS = 13


def round_to_tf32(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """The nearest TF32 values, ties to even, as float32; infinities stay, NaN becomes a NaN."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    last_kept = (bits >> _DROPPED_BITS) & 1
    rounded = (bits + (np.uint32((1 << (_DROPPED_BITS - 1)) - 1) + last_kept)) & ~np.uint32(
        (1 << _DROPPED_BITS) - 1
    )
    kept = np.where(np.isfinite(values), rounded, bits)
    return kept.astype(np.uint32).view(np.float32).reshape(values.shape)


def inexact_products(model: onnx.ModelProto) -> list[str]:
    """Names of the FP32 products that TF32 would change, in graph order.

    These have a factor that is neither a Cast from FP16, moved or not, nor a constant that TF32 holds
    exactly. ``model`` needs its weights loaded. An empty list allows TF32 for the whole graph.
    """
    walk = _Walk(onnx.shape_inference.infer_shapes(model))
    return [
        node.name
        for node in model.graph.node
        if node.op_type in MATRIX_PRODUCTS
        and walk.is_float32(node.output[0])
        and not all(walk.is_exact(factor) for factor in node.input[:2])
    ]


class _Walk:
    def __init__(self, model: onnx.ModelProto) -> None:
        self._index = GraphIndex(model)
        self._weights = {tensor.name: tensor for tensor in model.graph.initializer}

    def is_float32(self, name: str) -> bool:
        """A tensor of unknown type counts as FP32."""
        kind = self._index.types.get(name)
        return kind is None or kind.elem_type == TensorProto.FLOAT

    def is_exact(self, name: str) -> bool:
        weight = self._weights.get(name)
        if weight is not None:
            value = numpy_helper.to_array(weight)
            return weight.data_type != TensorProto.FLOAT or np.array_equal(value, round_to_tf32(value))
        node = self._index.producer.get(name)
        if node is None:
            return not self.is_float32(name)
        if node.op_type == "Cast":
            return self._is_fp16(node.input[0])
        if node.op_type in MOVES:
            data = node.input if node.op_type == "Concat" else node.input[:1]
            return all(self.is_exact(moved) for moved in data)
        return False

    def _is_fp16(self, name: str) -> bool:
        weight = self._weights.get(name)
        if weight is not None:
            return weight.data_type == TensorProto.FLOAT16
        kind = self._index.types.get(name)
        return kind is not None and kind.elem_type == TensorProto.FLOAT16
