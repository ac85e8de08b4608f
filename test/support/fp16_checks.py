"""Checks of a converted FP16 graph: validity, interface, precision of each node."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from efftam_workshop.export.fp16.attention import AttentionBlock, GraphIndex, attentions
from efftam_workshop.export.fp16.fp32_regions import EXACT, PERIODIC, PRODUCTS, float32_nodes

_BITS: dict[int, str] = {TensorProto.FLOAT: "32", TensorProto.FLOAT16: "16"}
_PATHS = {
    "all_fp16": ["MatMul16", "Add16", "Softmax16", "MatMul16"],
    "fused_fp32": ["MatMul16", "Cast32", "Add32", "Softmax32", "Cast16", "Cast32", "MatMul32", "Cast16"],
    "unfused_fp32": ["MatMul32", "Add32", "Softmax32", "Cast16", "MatMul16"],
}
"""Operators from score to value product with the bits of their result; Add only where there is a bias."""


def check_fp16(fp16: onnx.ModelProto, reference: onnx.ModelProto, form: str) -> list[str]:
    """The faults of a converted graph, a line each. ``reference``: the FP32 graph that it was made from
    (`convert.plain_graph`); ``form`` that its attention blocks must have."""
    try:
        onnx.checker.check_model(fp16, full_check=True)
        inferred = onnx.shape_inference.infer_shapes(fp16, strict_mode=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        return [f"not a valid graph: {' '.join(str(error).split())}"]
    wires = GraphIndex(inferred)
    return [
        *_interface(fp16, reference),
        *_shapes(wires, GraphIndex(onnx.shape_inference.infer_shapes(reference))),
        *_forms(fp16, reference, wires, form),
        *_precisions(fp16, reference, wires),
        *_cast_chains(fp16, wires, form),
        *_weights(fp16),
    ]


def _interface(fp16: onnx.ModelProto, reference: onnx.ModelProto) -> Iterator[str]:
    for kind in ("input", "output"):
        if list(getattr(fp16.graph, kind)) != list(getattr(reference.graph, kind)):
            yield f"{kind}s differ from the reference's"


def _shapes(fp16: GraphIndex, reference: GraphIndex) -> Iterator[str]:
    for name in reference.types:
        if name in fp16.types and fp16.shape(name) != reference.shape(name):
            yield f"{name} has shape {fp16.shape(name)}, the reference {reference.shape(name)}"


def _forms(fp16: onnx.ModelProto, reference: onnx.ModelProto, wires: GraphIndex, form: str) -> Iterator[str]:
    found, expected = attentions(fp16), attentions(reference)
    if [a.score for a in found] != [a.score for a in expected]:
        yield f"{len(found)} attention blocks, the reference has {len(expected)}"
    for attention in found:
        wanted = [step for step in _PATHS[form] if attention.bias or not step.startswith("Add")]
        path = _path(wires, attention, len(wanted))
        if path != wanted:
            yield f"attention {attention.score} runs {' '.join(path)}; {form} is {' '.join(wanted)}"


def _path(wires: GraphIndex, attention: AttentionBlock, steps: int) -> list[str]:
    node = next(n for n in wires.producer.values() if n.name == attention.score)
    path: list[str] = []
    while len(path) < steps:
        bits = _BITS.get(wires.types[node.output[0]].elem_type, "?")
        path.append(f"{node.op_type}{bits}")
        takers = wires.consumers.get(node.output[0], [])
        if not takers:
            break
        node = takers[0]
    return path


def _precisions(fp16: onnx.ModelProto, reference: onnx.ModelProto, wires: GraphIndex) -> Iterator[str]:
    must = float32_nodes(onnx.shape_inference.infer_shapes(reference))
    may = must | {name for a in attentions(fp16) for name in (a.score, a.bias, a.softmax, a.value)}
    for node in fp16.graph.node:
        types = {wires.types[name].elem_type for name in (*node.input, *node.output) if name in wires.types}
        is_fp16 = TensorProto.FLOAT16 in types
        if is_fp16 and node.op_type != "Cast" and (node.op_type in EXACT | PERIODIC or node.name in must):
            yield f"{node.op_type} {node.name} computes in FP16, must be FP32"
        elif TensorProto.FLOAT in types and node.op_type in PRODUCTS and node.name not in may:
            yield f"{node.op_type} {node.name} computes in FP32, should be FP16"


def _cast_chains(fp16: onnx.ModelProto, wires: GraphIndex, form: str) -> Iterator[str]:
    rounded = (
        {name for a in attentions(fp16) for name in (a.softmax, a.value)} if form == "fused_fp32" else set()
    )
    for node in fp16.graph.node:
        if node.op_type != "Cast":
            continue
        source = wires.producer.get(node.input[0])
        if node.input[0] in wires.types and node.attribute[0].i == wires.types[node.input[0]].elem_type:
            yield f"Cast {node.name} changes nothing"
        elif source is not None and source.op_type == "Cast":
            first = wires.producer.get(source.input[0])
            if first is None or first.name not in rounded:  # the form itself rounds there
                yield f"Cast {node.name} follows a Cast"


def _weights(fp16: onnx.ModelProto) -> Iterator[str]:
    for tensor in fp16.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT16 and not np.isfinite(numpy_helper.to_array(tensor)).all():
            yield f"weight {tensor.name} is not finite in FP16"
