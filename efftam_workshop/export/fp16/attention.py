"""Attention blocks of an ONNX graph and their precision forms.

In an FP16 graph the attention scores must be accumulated in FP32. TensorRT selects the kernel and the type of
its accumulator by the position of the Casts. The Casts follow from the nodes that compute in FP32
(`float32_parts`). The forms are:

- ``all_fp16``: The block contains no Cast. TensorRT fuses the block and accumulates in FP16, which is wrong
  on real networks. This form is used to prove that the checks find wrong engines.
- ``fused_fp32``: The score product is in FP16. Bias and Softmax are in FP32, and their result is rounded to
  FP16. The value product is in FP32. TensorRT fuses the block and accumulates in FP32. A runtime that does
  not fuse the block stores the scores in FP16.
- ``unfused_fp32``: q and k are cast to FP32 before the score product, and all nodes up to Softmax are in
  FP32. The value product is in FP16. TensorRT never fuses the block. The scores are stored in FP32.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from efftam_ros.core.errors import InputError

FORMS = ("all_fp16", "fused_fp32", "unfused_fp32")
MOVES = frozenset(
    {
        *("Reshape", "Transpose", "Unsqueeze", "Squeeze", "Flatten"),
        *("Slice", "Split", "Concat", "Gather", "Expand"),
    }
)
"""Operators that only move values and compute nothing."""


@dataclass(frozen=True)
class AttentionBlock:
    """An attention block by the names of its nodes; "" for a node that the block lacks.

    ``score``: MatMul of queries and keys. ``bias``: Add of a bias. ``softmax``: Softmax. ``value``: MatMul of
    probabilities and values. ``scale``: Mul or Div by a constant, or Gemm with a factor, that scales the
    queries or keys before ``score``. ``queries``, ``keys``: their numbers. ``head``: channels of the queries.
    The numbers are 0 where the shape is not static.
    """

    score: str
    bias: str
    softmax: str
    value: str
    scale: str
    queries: int
    keys: int
    head: int


def attentions(model: onnx.ModelProto) -> list[AttentionBlock]:
    """Return the attention blocks of a graph in its order.

    A block consists of MatMul, optional Add of a bias, optional Cast, Softmax, optional Casts, and MatMul.
    Raises InputError for a Softmax outside such a block, because its products would stay in FP16.
    """
    wires = GraphIndex(onnx.shape_inference.infer_shapes(model))
    return [_block_of(wires, node) for node in model.graph.node if node.op_type == "Softmax"]


class GraphIndex:
    """Producer, consumers and type of each tensor of a graph."""

    def __init__(self, model: onnx.ModelProto) -> None:
        graph = model.graph
        self.constants = {tensor.name for tensor in graph.initializer}
        self.producer = {name: node for node in graph.node for name in node.output}
        self.consumers: dict[str, list[onnx.NodeProto]] = {}
        for node in graph.node:
            for name in node.input:
                self.consumers.setdefault(name, []).append(node)
        self.types = {
            info.name: info.type.tensor_type for info in (*graph.input, *graph.value_info, *graph.output)
        }

    def before(self, name: str) -> onnx.NodeProto | None:
        """Return the node that produces the tensor, skipping Casts; None for inputs and constants."""
        node = self.producer.get(name)
        return self.before(node.input[0]) if node is not None and node.op_type == "Cast" else node

    def after(self, name: str) -> list[onnx.NodeProto]:
        """Return the nodes that consume the tensor; instead of a Cast the nodes that consume its result."""
        found = []
        for node in self.consumers.get(name, []):
            found += self.after(node.output[0]) if node.op_type == "Cast" else [node]
        return found

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the tensor's shape with 0 for axes that are not static; () for unknown tensors."""
        return tuple(axis.dim_value for axis in self.types[name].shape.dim) if name in self.types else ()


def _block_of(wires: GraphIndex, softmax: onnx.NodeProto) -> AttentionBlock:
    bias = wires.before(softmax.input[0])
    score = bias
    if bias is not None and bias.op_type == "Add":
        products = [
            node for node in map(wires.before, bias.input) if node is not None and node.op_type == "MatMul"
        ]
        score = products[0] if len(products) == 1 else None
    else:
        bias = None
    consumers = wires.after(softmax.output[0])
    value = consumers[0] if len(consumers) == 1 and consumers[0].op_type == "MatMul" else None
    if score is None or score.op_type != "MatMul" or value is None:
        raise InputError(
            f"Softmax {softmax.name} is not between two matrix products, so it can't be kept in FP32;"
            " export the attention as MatMul, Add of a bias if any, Softmax, MatMul"
        )
    shape, query = wires.shape(softmax.output[0]), wires.shape(score.input[0])
    return AttentionBlock(
        score=score.name,
        bias="" if bias is None else bias.name,
        softmax=softmax.name,
        value=value.name,
        scale=_scale(wires, score),
        queries=shape[-2] if len(shape) > 1 else 0,
        keys=shape[-1] if shape else 0,
        head=query[-1] if query else 0,
    )


def _scale(wires: GraphIndex, score: onnx.NodeProto) -> str:
    """Return the name of the node that scales a factor of the score product, "" for none.

    This is the nearest Mul or Div by a constant, or Gemm with a factor. Nodes that move or add values are
    skipped; a rotary position, for example, adds scaled parts.
    """
    for name in score.input:
        node = wires.before(name)
        while node is not None and node.op_type in MOVES | {"Add"}:
            node = wires.before(node.input[0])
        if node is None:
            continue
        is_scaled = node.op_type in ("Mul", "Div") and set(node.input) & wires.constants
        if is_scaled or any(attribute.name == "alpha" and attribute.f != 1 for attribute in node.attribute):
            return node.name
    return ""


def float32_parts(attention: AttentionBlock, form: str) -> set[str]:
    """Return the names of the nodes of a block that compute in FP32 in the given form.

    Raises InputError for an unknown form, and for a block whose queries are not scaled before the score
    product.
    """
    if form not in FORMS:
        raise InputError(f"attention form {form} is unknown; choose one of {', '.join(FORMS)}")
    if form == "all_fp16":
        return set()
    if not attention.scale:
        raise InputError(
            f"attention {attention.score}: queries are not scaled before the score product, so FP16 scores"
            " overflow early; scale them first or keep the graph in FP32"
        )
    product = attention.value if form == "fused_fp32" else attention.score
    return {product, attention.bias, attention.softmax} - {""}
