"""Quantises the products with constant weights of a graph to INT8 (Q/DQ pairs around FP32 products).

Symmetric, weights per output channel, activations per tensor by the extremes seen in calibration. The
quantiser is onnxruntime's; the FP16 conversion comes afterwards (`fp16.convert`).
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from efftam_ros.core.errors import InputError
from efftam_ros.runtime.device.memory import ATTENTION

INT8_MODULES = ("image_encoder", ATTENTION)
"""Where INT8 pays: the others are small, and products of two activations stay out of it."""
PRODUCTS = ("MatMul", "Gemm")

Inputs = Mapping[str, NDArray[Any]]


def quantizable(model: onnx.ModelProto) -> list[str]:
    """Names of the products with constant weights, after the operators on weights are folded."""
    return _constant_products(with_folded_weights(model))


def quantize(model: onnx.ModelProto, samples: Sequence[Inputs]) -> onnx.ModelProto:
    """The graph with Q/DQ pairs before the products that `quantizable` names, all tensors FP32.

    ``samples``: inputs of the graph as in use; activations beyond their extremes saturate. ``model``: FP32,
    with its weights loaded; not modified. Raises InputError without samples, or where there is nothing to
    quantise.
    """
    folded = with_folded_weights(model)
    nodes = _constant_products(folded)
    if not nodes:
        raise InputError("the graph has no product with constant weights; build it in FP16")
    if not samples:
        raise InputError("there are no calibration inputs; give a clip of at least two frames")
    with tempfile.TemporaryDirectory(prefix="efftam-int8-") as folder, _quiet():
        out = Path(folder) / "quantized.onnx"
        quantize_static(
            folded,
            out,
            _Samples(samples),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=list(PRODUCTS),
            per_channel=True,
            activation_type=QuantType.QInt8,
            weight_type=QuantType.QInt8,
            nodes_to_quantize=nodes,
            extra_options={
                "ActivationSymmetric": True,
                "WeightSymmetric": True,
                "AddQDQPairToWeight": True,
                "OpTypesToExcludeOutputQuantization": list(PRODUCTS),
                "QuantizeBias": False,
            },
        )
        return onnx.load(out)


def _constant_products(folded: onnx.ModelProto) -> list[str]:
    constant = {tensor.name for tensor in folded.graph.initializer}
    return [n.name for n in folded.graph.node if n.op_type in PRODUCTS and n.input[1] in constant]


def with_folded_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which what is computed from weights alone is a weight: exported graphs transpose, slice and
    join weights that several graphs share."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    kept = []
    for node in graph.node:
        names = [name for name in node.input if name]
        if len(node.output) != 1 or not names or not all(name in tensors for name in names):
            kept.append(node)
            continue
        value = _evaluated(copy, node, {name: numpy_helper.to_array(tensors[name]) for name in names})
        tensors[node.output[0]] = numpy_helper.from_array(value, node.output[0])
    read = {name for node in kept for name in node.input} | {info.name for info in graph.output}
    del graph.node[:], graph.initializer[:]
    graph.node.extend(kept)
    graph.initializer.extend(tensor for name, tensor in tensors.items() if name in read)
    return copy


def _evaluated(model: onnx.ModelProto, node: onnx.NodeProto, values: dict[str, NDArray[Any]]) -> NDArray[Any]:
    inputs = [
        onnx.helper.make_tensor_value_info(k, onnx.helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for k, v in values.items()
    ]
    graph = onnx.helper.make_graph([node], "fold", inputs, [onnx.ValueInfoProto(name=node.output[0])])
    single = onnx.helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    results: Any = ReferenceEvaluator(single).run(None, values)
    return np.ascontiguousarray(results[0])


class _Samples(CalibrationDataReader):
    def __init__(self, samples: Sequence[Inputs]) -> None:
        self._left: Iterator[Inputs] = iter(samples)

    def get_next(self) -> dict[str, NDArray[Any]] | None:
        sample = next(self._left, None)
        return None if sample is None else dict(sample)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the quantiser's advice to run a preprocessing that moves names."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(level)
