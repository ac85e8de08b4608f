"""Replaces LayerNormalization by simple operators, for versions of TensorRT whose parser refuses it."""

from __future__ import annotations

from typing import Any

import onnx
from onnx import TensorProto, helper

LAYER_NORMALIZATION = "LayerNormalization"


def without_layer_normalization(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy in which every LayerNormalization is computed by simple operators in FP32.

    TensorRT's own LayerNormalization computes in FP32 too, because squares of FP16 values overflow from 256
    on. ``model``: opset 18 or later.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    inferred = onnx.shape_inference.infer_shapes(model).graph
    types = {info.name: info.type.tensor_type.elem_type for info in (*inferred.input, *inferred.value_info)}
    types |= {tensor.name: tensor.data_type for tensor in inferred.initializer}
    nodes: list[onnx.NodeProto] = []
    for node in copy.graph.node:
        nodes += _written_out(node, types[node.input[0]]) if node.op_type == LAYER_NORMALIZATION else [node]
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    return copy


def _written_out(node: onnx.NodeProto, kind: int) -> list[onnx.NodeProto]:
    """Return nodes that compute the first output of ``node``, whose data have the ONNX type ``kind``."""
    made: list[onnx.NodeProto] = []

    def add(operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        name = f"{node.name}/{operator}_{len(made)}"
        made.append(helper.make_node(operator, inputs, [output or name], name, **attributes))
        return output or name

    def constant(value: float, kind: int = TensorProto.FLOAT) -> str:
        return add("Constant", value=helper.make_tensor("value", kind, [1], [value]))

    def mean(name: str) -> str:
        return add("ReduceMean", name, constant(-1, TensorProto.INT64))

    given = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    axis = given.get("axis", -1)
    if axis != -1:
        raise ValueError(f"{node.name} normalises from axis {axis} on; only the last axis is supported")
    data, *factors = (add("Cast", name, to=TensorProto.FLOAT) for name in node.input if name)
    centred = add("Sub", data, mean(data))
    variance = mean(add("Mul", centred, centred))
    deviation = add("Sqrt", add("Add", variance, constant(given.get("epsilon", 1e-5))))
    value = add("Div", centred, deviation)
    for operator, factor in zip(("Mul", "Add"), factors, strict=False):
        value = add(operator, value, factor)
    add("Cast", value, output=node.output[0], to=kind)
    return made
