"""Checks that an exported graph runs in every supported runtime."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx

CONTROL_FLOW = frozenset({"If", "Loop", "Scan", "SequenceMap"})
DATA_DEPENDENT = frozenset({"NonZero", "Compress", "Unique", "NonMaxSuppression"})
_SHAPE_INPUTS = {
    "Reshape": (1,),
    "Expand": (1,),
    "ConstantOfShape": (0,),
    "Tile": (1,),
    "Range": (0, 1, 2),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Pad": (1,),
    "Resize": (2, 3),
}


def graph_faults(path: Path) -> list[str]:
    """Faults of the graph in this file, one line each; empty for a correct graph."""
    onnx.checker.check_model(str(path), full_check=True)
    model = onnx.load(path, load_external_data=False)
    return [
        *(
            f"control flow: {node.op_type} {node.name}"
            for node in model.graph.node
            if node.op_type in CONTROL_FLOW
        ),
        *(f"data-dependent shape: {line}" for line in _data_dependent_shapes(model.graph)),
        *(f"decomposed layer norm: {line}" for line in decomposed_layer_norms(model.graph)),
        *(
            f"not a standard operator: {node.domain}.{node.op_type}"
            for node in model.graph.node
            if node.domain
        ),
    ]


def decomposed_layer_norms(graph: onnx.GraphProto) -> list[str]:
    """Names of nodes that subtract a mean: layer norms not exported as one LayerNormalization operator."""
    means = {node.output[0]: node.input[0] for node in graph.node if node.op_type == "ReduceMean"}
    return [
        node.name
        for node in graph.node
        if node.op_type == "Sub" and means.get(node.input[1], "") == node.input[0]
    ]


def _data_dependent_shapes(graph: onnx.GraphProto) -> Iterator[str]:
    producers = {output: node for node in graph.node for output in node.output}
    inputs = {info.name for info in graph.input}
    on_data: dict[str, bool] = {}

    def depends_on_data(name: str) -> bool:
        if name not in on_data:
            node = producers.get(name)
            if node is None:
                on_data[name] = name in inputs
            else:
                on_data[name] = node.op_type != "Shape" and any(
                    map(depends_on_data, filter(None, node.input))
                )
        return on_data[name]

    for node in graph.node:
        if node.op_type in DATA_DEPENDENT:
            yield f"{node.op_type} {node.name}"
        for index in _SHAPE_INPUTS.get(node.op_type, ()):
            if index < len(node.input) and node.input[index] and depends_on_data(node.input[index]):
                yield f"{node.op_type} {node.name} takes {node.input[index]} from the data"
