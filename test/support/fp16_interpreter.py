"""Runs a typed ONNX graph operator by operator, each result rounded to the type that the graph gives it.

onnxruntime's CPU provider computes chains of FP16 products in FP32, so that a graph that overflows on a GPU
looks right there. `onnx.reference` does what the graph says; its slow operators are replaced by PyTorch's,
which sum in FP32 and are rounded once, as tensor cores with FP32 sums do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_resize import Resize as _Resize

from efftam_workshop.agreement.runners import Arrays
from efftam_workshop.export.fp16.fp32_regions import round_to_tf32

Array = NDArray[Any]
EMULATED = "efftam.emulated"


class LiteralGraph:
    """A graph in the interpreter: arrays in and out by name. With ``tf32`` the factors of FP32 products are
    rounded to TF32."""

    def __init__(self, model: onnx.ModelProto, tf32: bool = False) -> None:
        self._evaluator = ReferenceEvaluator(_with_tf32(model) if tf32 else model, new_ops=_OPERATORS)
        self.outputs = [info.name for info in model.graph.output]

    def __call__(self, inputs: Mapping[str, Array]) -> Arrays:
        feeds = {name: inputs[name] for name in self._evaluator.input_names}
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"), torch.inference_mode():
            results = self._evaluator.run(None, feeds)
        return dict(zip(self.outputs, results, strict=True))


def _with_tf32(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    inferred = onnx.shape_inference.infer_shapes(model)
    types = {
        info.name: info.type.tensor_type.elem_type
        for info in (*inferred.graph.value_info, *inferred.graph.output)
    }
    for node in copy.graph.node:
        if node.op_type == "MatMul" and types[node.output[0]] == TensorProto.FLOAT:
            node.domain, node.op_type = EMULATED, "MatMulTf32"
    copy.opset_import.append(helper.make_opsetid(EMULATED, 1))
    return copy


def _wide(value: Array) -> torch.Tensor:
    return torch.from_numpy(np.array(value, np.float32, order="C"))


def _stored(value: torch.Tensor, like: Array) -> tuple[Array]:
    return (value.numpy().astype(like.dtype, copy=False),)


def _weights(w: Array, b: Array | None) -> tuple[torch.Tensor, torch.Tensor | None]:
    return _wide(w), None if b is None else _wide(b)


def _common(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes that both convolutions have, as PyTorch names them."""
    return {
        "stride": attributes.get("strides") or 1,
        "dilation": attributes.get("dilations") or 1,
        "groups": attributes.get("group", 1),
    }


class MatMulTf32(OpRun):
    op_domain = EMULATED

    def _run(self, a: Array, b: Array) -> tuple[Array]:
        return _stored(_wide(round_to_tf32(a)) @ _wide(round_to_tf32(b)), a)


class MatMul(OpRun):
    op_domain = ""

    def _run(self, a: Array, b: Array) -> tuple[Array]:
        return _stored(_wide(a) @ _wide(b), a)


class Gemm(OpRun):
    op_domain = ""

    def _run(self, a: Array, b: Array, c: Array | None = None, **attributes: Any) -> tuple[Array]:
        left = _wide(a.T if attributes.get("transA") else a)
        right = _wide(b.T if attributes.get("transB") else b)
        result = attributes.get("alpha", 1.0) * (left @ right)
        return _stored(result if c is None else result + attributes.get("beta", 1.0) * _wide(c), a)


class Conv(OpRun):
    op_domain = ""

    def _run(self, x: Array, w: Array, b: Array | None = None, **attributes: Any) -> tuple[Array]:
        top, left, bottom, right = attributes.get("pads") or (0, 0, 0, 0)
        padded = F.pad(_wide(x), (left, right, top, bottom))
        return _stored(F.conv2d(padded, *_weights(w, b), **_common(attributes)), x)


class ConvTranspose(OpRun):
    op_domain = ""

    def _run(self, x: Array, w: Array, b: Array | None = None, **attributes: Any) -> tuple[Array]:
        padding = (attributes.get("pads") or [0, 0])[:2]
        more = {"padding": padding, "output_padding": attributes.get("output_padding") or 0}
        return _stored(F.conv_transpose2d(_wide(x), *_weights(w, b), **_common(attributes), **more), x)


class LayerNormalization(OpRun):
    """``stash_type`` 1, ONNX's default: computed in FP32 whatever the type."""

    op_domain = ""

    def _run(
        self,
        x: Array,
        scale: Array,
        b: Array | None = None,
        axis: int = -1,
        epsilon: float = 1e-5,
        stash_type: int = 1,
    ) -> tuple[Array]:
        bias = None if b is None else _wide(b)
        return _stored(F.layer_norm(_wide(x), x.shape[axis:], _wide(scale), bias, epsilon), x)


class Erf(OpRun):
    op_domain = ""

    def _run(self, x: Array) -> tuple[Array]:
        return _stored(torch.erf(_wide(x)), x)


class Gelu(OpRun):
    op_domain = ""

    def _run(self, x: Array, approximate: str = "none") -> tuple[Array]:
        return _stored(F.gelu(_wide(x), approximate=approximate), x)


class Resize(_Resize):
    """The two ways of resizing that the networks use; any other goes the slow way."""

    op_domain = ""

    def _run(  # type: ignore[override]
        self, x: Array, *args: Any, **attributes: Any
    ) -> tuple[Array]:
        way = (attributes["mode"], attributes["coordinate_transformation_mode"])
        scales = args[1] if len(args) > 1 else None
        if way not in _RESIZES or scales is None or attributes.get("antialias"):
            result: tuple[Array] = super()._run(x, *args, **attributes)
            return result
        size = [round(float(s) * n) for s, n in zip(scales[2:], x.shape[2:], strict=True)]
        return _stored(F.interpolate(_wide(x), size, **_RESIZES[way]), x)


_RESIZES: dict[tuple[str, str], dict[str, Any]] = {
    ("nearest", "asymmetric"): {"mode": "nearest"},
    ("linear", "half_pixel"): {"mode": "bilinear", "align_corners": False},
}
_OPERATORS = [
    *(MatMulTf32, MatMul, Gemm, Conv, ConvTranspose, LayerNormalization),
    *(Erf, Gelu, Resize),
]
