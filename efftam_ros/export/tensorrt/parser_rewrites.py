"""Small rewritings that leave a graph's results alone, so that TensorRT's parser takes it."""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper


def trt_ready(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which every ArgMax over a vector [n] is one over a row [1,n]: TensorRT wants two axes.

    A graph without such an ArgMax comes back equal.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    ranks = {
        info.name: len(info.type.tensor_type.shape.dim)
        for info in onnx.shape_inference.infer_shapes(model).graph.value_info
    }
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        nodes.append(node)
        if node.op_type not in ("ArgMax", "ArgMin") or ranks.get(node.input[0]) != 1:
            continue
        vector, result = node.input[0], node.output[0]
        axes = f"{node.name}/row_axis"
        graph.initializer.append(helper.make_tensor(axes, TensorProto.INT64, [1], [0]))
        unsqueeze = helper.make_node("Unsqueeze", [vector, axes], [f"{vector}/row"], f"{node.name}/Unsqueeze")
        nodes.insert(-1, unsqueeze)
        node.input[0], node.output[0] = f"{vector}/row", f"{result}/row"
        others = [attribute for attribute in node.attribute if attribute.name != "axis"]
        del node.attribute[:]
        node.attribute.extend([*others, helper.make_attribute("axis", 1)])
        nodes.append(helper.make_node("Squeeze", [f"{result}/row", axes], [result], f"{node.name}/Squeeze"))
    del graph.node[:]
    graph.node.extend(nodes)
    return copy
