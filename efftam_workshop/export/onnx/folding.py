"""Replaces nodes that depend only on shapes and tables by constants.

Nodes that depend on weights are not replaced, so that every weight keeps its name. Runtimes fold them when
they load the graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

_MAX_GROWN_VALUES = 1 << 16
"""Results larger than their inputs and with more values than this are not folded: files stay small."""
Array = NDArray[Any]
Arrays = dict[str, Array]


def fold_constants(model: onnx.ModelProto) -> None:
    """Replace every node that depends only on constants and known dimensions by its value, in place."""
    # Each pass lets shape inference resolve more tensors, whose shapes the next pass can fold.
    while _fold_once(model):
        pass
    drop_unused(model.graph)


def constants(graph: onnx.GraphProto) -> Arrays:
    """Return the values of the graph's Constant nodes by tensor name."""
    return {
        node.output[0]: numpy_helper.to_array(node.attribute[0].t)
        for node in graph.node
        if node.op_type == "Constant"
    }


def _fold_once(model: onnx.ModelProto) -> bool:
    dims = _known_dims(model)
    values = constants(model.graph)
    kept: list[onnx.NodeProto] = []
    for node in model.graph.node:
        value = None if node.op_type == "Constant" else _value(model, node, values, dims)
        if value is None:
            kept.append(node)
            continue
        values[node.output[0]] = value
        kept.append(constant_node(node.output[0], value))
    folded = any(a.op_type != b.op_type for a, b in zip(kept, model.graph.node, strict=True))
    replace(model.graph.node, kept)
    return folded


def constant_node(name: str, value: Array) -> onnx.NodeProto:
    """Return a Constant node whose output has this name and value."""
    return onnx.helper.make_node(
        "Constant", [], [name], value=numpy_helper.from_array(np.asarray(value), name)
    )


def _value(
    model: onnx.ModelProto, node: onnx.NodeProto, values: Arrays, dims: dict[str, list[int | None]]
) -> Array | None:
    if node.op_type == "Shape":
        shape = dims.get(node.input[0])
        known = shape is not None and None not in shape and not node.attribute
        return np.array(shape, np.int64) if known else None
    if node.op_type == "Gather" and node.input[1] in values:
        producer = _producer(model.graph, node.input[0])
        if producer is not None and producer.op_type == "Shape" and not producer.attribute:
            shape = dims.get(producer.input[0])
            index = values[node.input[1]]
            if shape is not None and index.ndim == 0 and shape[int(index)] is not None:
                return np.array(shape[int(index)], np.int64)
    if len(node.output) != 1 or not all(name in values for name in node.input if name):
        return None
    return _evaluate(model, node, values)


def evaluated(model: onnx.ModelProto, node: onnx.NodeProto, feeds: Arrays) -> Array:
    """Compute the output of a node of ``model``; ``feeds``: the values of its inputs by name."""
    inputs = [
        onnx.helper.make_tensor_value_info(k, onnx.helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for k, v in feeds.items()
    ]
    output = onnx.ValueInfoProto(name=node.output[0])
    graph = onnx.helper.make_graph([node], "fold", inputs, [output])
    single = onnx.helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    results: Any = ReferenceEvaluator(single).run(None, feeds)
    return np.array(results[0], order="C")


def _evaluate(model: onnx.ModelProto, node: onnx.NodeProto, values: Arrays) -> Array | None:
    feeds = {name: values[name] for name in node.input if name}
    result = evaluated(model, node, feeds)
    grown = result.size > 2 * sum(value.size for value in feeds.values())
    return None if grown and result.size > _MAX_GROWN_VALUES else result


def _producer(graph: onnx.GraphProto, name: str) -> onnx.NodeProto | None:
    return next((node for node in graph.node if name in node.output), None)


def _known_dims(model: onnx.ModelProto) -> dict[str, list[int | None]]:
    # Shape inference copies the whole model, but of the weights it needs only the shapes. So each weight is
    # replaced by a graph input of the same shape.
    light = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    light.graph.node.extend(model.graph.node)
    light.graph.input.extend(model.graph.input)
    light.graph.output.extend(model.graph.output)
    weights = [
        onnx.helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in model.graph.initializer
    ]
    light.graph.input.extend(weights)
    graph = onnx.shape_inference.infer_shapes(light, data_prop=True).graph
    return {
        info.name: [d.dim_value if d.HasField("dim_value") else None for d in info.type.tensor_type.shape.dim]
        for info in (*graph.input, *graph.output, *graph.value_info)
        if info.type.tensor_type.HasField("shape")
    }


def drop_unused(graph: onnx.GraphProto) -> None:
    """Remove the nodes and initialisers on which no output depends."""
    needed = {output.name for output in graph.output}
    kept = []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            kept.append(node)
            needed.update(node.input)
    replace(graph.node, reversed(kept))
    replace(graph.initializer, [t for t in graph.initializer if t.name in needed])


def replace(field: Any, items: Iterable[Any]) -> None:
    """Replace the content of a repeated protobuf field; ``items`` may come from the field itself."""
    copies = list(items)
    del field[:]
    field.extend(copies)


def rename_inputs(nodes: Iterable[onnx.NodeProto], renamed: Mapping[str, str]) -> None:
    for node in nodes:
        for i, name in enumerate(node.input):
            node.input[i] = renamed.get(name, name)
