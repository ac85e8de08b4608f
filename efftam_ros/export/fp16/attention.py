"""AttentionBlock blocks in an ONNX graph: finding them, giving them a precision form.

In fp16 precision the scores of a block need float32 sums. TensorRT chooses its kernel, and the kernel's sums,
by where the Casts stand, so each form below is a fixed arrangement of Casts:

- ``all_fp16``: no Cast. Fused, sums in FP16; wrong on real networks, kept to show that checks can fail.
- ``fused_fp32``: score product in FP16, Cast, bias and Softmax in FP32, rounding to FP16, Cast, value product
  in FP32. Fused with FP32 sums. Between the two products a plain interpreter still stores the scores in FP16.
- ``unfused_fp32``: q and k cast to FP32 before the score product, FP32 up to Softmax, value product in FP16.
  Never fused; scores lie in memory in FP32.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx
from onnx import TensorProto, helper

from efftam_ros.core.errors import InputError

FORMS = ("all_fp16", "fused_fp32", "unfused_fp32")


@dataclass(frozen=True)
class AttentionBlock:
    """One attention block; the fields are node names, except ``queries``, ``keys`` and ``head`` (channels of
    one head), which are sizes, 0 where not static.

    ``bias``: the Add between score product and Softmax, "" for none; ``scale``: the Mul or Div by a constant
    that scales the queries or keys before the product, "" for none.
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
    """The attention blocks MatMul, optional bias Add, optional Cast, Softmax, optional Casts, MatMul, in
    order.

    Raises InputError for a Softmax in any other surroundings: its products would go unprotected.
    """
    wires = Wires(onnx.shape_inference.infer_shapes(model))
    return [_around(wires, node) for node in model.graph.node if node.op_type == "Softmax"]


class Wires:
    """Who makes and who takes each tensor of a graph."""

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
        """The node that makes this tensor, seen through Casts."""
        node = self.producer.get(name)
        return self.before(node.input[0]) if node is not None and node.op_type == "Cast" else node

    def after(self, name: str) -> list[onnx.NodeProto]:
        """The nodes that take this tensor, seen through Casts."""
        found = []
        for node in self.consumers.get(name, []):
            found += self.after(node.output[0]) if node.op_type == "Cast" else [node]
        return found

    def shape(self, name: str) -> tuple[int, ...]:
        """The tensor's shape, 0 for axes that are not static."""
        return tuple(axis.dim_value for axis in self.types[name].shape.dim) if name in self.types else ()


def _around(wires: Wires, softmax: onnx.NodeProto) -> AttentionBlock:
    bias = wires.before(softmax.input[0])
    score = bias
    if bias is not None and bias.op_type == "Add":
        products = [
            node for node in map(wires.before, bias.input) if node is not None and node.op_type == "MatMul"
        ]
        score = products[0] if len(products) == 1 else None
    else:
        bias = None
    takers = wires.after(softmax.output[0])
    value = takers[0] if len(takers) == 1 and takers[0].op_type == "MatMul" else None
    if score is None or score.op_type != "MatMul" or value is None:
        raise InputError(
            f"Softmax {softmax.name} is not between two matrix products, so its precision can't be protected;"
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


def _scale(wires: Wires, score: onnx.NodeProto) -> str:
    """The Mul or Div by a constant right before the score product, past Transposes."""
    for name in score.input:
        node = wires.before(name)
        while node is not None and node.op_type == "Transpose":
            node = wires.before(node.input[0])
        if node is not None and node.op_type in ("Mul", "Div") and set(node.input) & wires.constants:
            return node.name
    return ""


def apply_form(model: onnx.ModelProto, attention: AttentionBlock, form: str) -> None:
    """Give one block of an all-FP16 graph its form, in place. Raises InputError for a form that is unknown
    or that needs queries scaled before the score product where they are not."""
    if form not in FORMS:
        raise InputError(f"attention form {form} is unknown; choose one of {', '.join(FORMS)}")
    if form == "all_fp16":
        return
    if not attention.scale:
        raise InputError(
            f"attention {attention.score}: queries are not scaled before the score product, so FP16 scores"
            " overflow early; scale them first or keep the graph in FP32"
        )
    _Rewriting(model, attention).apply(form)


class _Rewriting:
    def __init__(self, model: onnx.ModelProto, attention: AttentionBlock) -> None:
        self._nodes = model.graph.node
        named = {node.name: node for node in self._nodes}
        self._score, self._softmax = named[attention.score], named[attention.softmax]
        self._value, self._bias = named[attention.value], named.get(attention.bias)
        self._producer = {name: node for node in self._nodes for name in node.output}

    def apply(self, form: str) -> None:
        if form == "unfused_fp32":
            for position in (0, 1):
                self._widen(self._score, position)
        else:
            self._cast_output(self._score, TensorProto.FLOAT)
        if self._bias is not None:
            for position, name in enumerate(self._bias.input):
                if name not in (self._score.output[0], f"{self._score.output[0]}/float32"):
                    self._unround(self._bias, position)
        self._cast_output(self._softmax, TensorProto.FLOAT16)
        if form == "fused_fp32":
            for position in (0, 1):
                self._widen(self._value, position)
            self._cast_output(self._value, TensorProto.FLOAT16, keep_name=True)

    def _widen(self, node: onnx.NodeProto, position: int) -> None:
        """Let this FP16 input of the node be cast to FP32."""
        name = node.input[position]
        cast = f"{name}/float32"
        if cast not in self._producer:
            made = helper.make_node("Cast", [name], [cast], f"{cast}/Cast", to=TensorProto.FLOAT)
            self._insert(node, made)
        node.input[position] = cast

    def _unround(self, node: onnx.NodeProto, position: int) -> None:
        """Let this input of the node be FP32: what it was before a Cast to FP16, where it was that."""
        source = self._producer.get(node.input[position])
        if source is not None and source.op_type == "Cast":
            node.input[position] = source.input[0]
        else:
            self._widen(node, position)

    def _cast_output(self, node: onnx.NodeProto, to: int, keep_name: bool = False) -> None:
        """Put a Cast behind the node. Its takers take the Cast's output; with ``keep_name`` that has the old
        name, so that the block's output is called as before."""
        name = node.output[0]
        suffix = "float32" if (to == TensorProto.FLOAT) != keep_name else "fp16"
        other = f"{name}/{suffix}"
        if keep_name:
            node.output[0] = other
            made, taken = name, other
        else:
            made, taken = other, name
            for taker in self._nodes:
                for i, taken_name in enumerate(taker.input):
                    if taken_name == name:
                        taker.input[i] = other
        cast = helper.make_node("Cast", [taken], [made], f"{name}/{suffix}/Cast", to=to)
        self._insert(node, cast, after=True)

    def _insert(self, beside: onnx.NodeProto, cast: onnx.NodeProto, after: bool = False) -> None:
        index = next(i for i, node in enumerate(self._nodes) if node.name == beside.name)
        self._nodes.insert(index + after, cast)
        self._producer[cast.output[0]] = cast
