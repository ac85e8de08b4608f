"""Converts FP32 graphs to strongly typed FP16 graphs with FP32 inputs and outputs.

Each node gets a precision (`fp32_regions`), and each edge between two precisions a Cast. The float16 pass of
onnxconverter-common 1.16 is not used: it clamps weights at 10000 instead of rejecting weights out of range,
it casts around every FP32 node instead of once per tensor, and it does not handle attention.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from efftam_ros.core.errors import InputError
from efftam_ros.runtime.bundle import Bundle
from efftam_ros.runtime.device.memory import GRAPHS
from efftam_workshop.export.fp16.attention import GraphIndex, attentions, float32_parts
from efftam_workshop.export.fp16.fp32_regions import float32_nodes
from efftam_workshop.export.onnx.folding import drop_unused, replace

FLOAT_ONLY_INPUTS = {"Resize": (1, 2)}
"""By operator, the indices of inputs that must be FP32 even if the operator's data are FP16."""

WIDE_HEAD, FUSED_QUERIES, GROUPS = 256, 4096, 2
"""TensorRT does not fuse an attention with one head of `WIDE_HEAD` channels or more and few queries.

TensorRT-RTX 1.7 fuses such heads with 4,096 queries but not with 1,024, and heads of 16 to 64 channels from 9
queries on. If the queries are divided into `GROUPS` groups, the attention is fused (`in_groups`).
"""
FORM = "fused_fp32"
"""The form of attention that is expected to be the fastest of those that accumulate in FP32."""


def to_fp16(model: onnx.ModelProto, name: str, form: str = "") -> onnx.ModelProto:
    """Return the graph ``name`` of a bundle in FP16; inputs and outputs keep name, shape and dtype.

    ``model``: in FP32, with its weights loaded; not modified. ``form``: precision form of its attention
    (`fp16.attention`), "" for `FORM`. Raises InputError for a weight out of range of FP16, which it names,
    and for an attention block that is not recognised.
    """
    form = form or FORM
    fp16 = _PrecisionAssignment(name, in_groups(plain_graph(model), form), form).typed()
    drop_unused(fp16.graph)
    return fp16


def load_graphs(bundle: Bundle) -> dict[str, onnx.ModelProto]:
    """Return the graphs of a bundle that run on a GPU, in FP32 and ready for conversion (`plain_graph`)."""
    return {name: plain_graph(onnx.load(bundle.graphs[name].path)) for name in GRAPHS}


def plain_graph(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return an FP32 copy of ``model``, from which FP16 graphs are made and with which they are compared.

    TensorRT's parser accepts the copy (`trt_ready`). Weights stored as FP16 with a Cast become FP32 weights.
    Casts from FP32 to FP32 are removed.
    """
    copy = trt_ready(model)
    graph = copy.graph
    stored = {tensor.name: tensor for tensor in graph.initializer}
    types = {
        info.name: info.type.tensor_type.elem_type
        for info in onnx.shape_inference.infer_shapes(model).graph.value_info
    }
    outputs = {info.name for info in graph.output}
    same: dict[str, str] = {}
    kept = []
    for node in graph.node:
        for i, source in enumerate(node.input):
            node.input[i] = same.get(source, source)
        to = node.attribute[0].i if node.op_type == "Cast" else None
        if to == TensorProto.FLOAT and node.input[0] in stored:
            value = numpy_helper.to_array(stored[node.input[0]]).astype(np.float32)
            graph.initializer.append(numpy_helper.from_array(value, node.output[0]))
        elif to == types.get(node.input[0]) == TensorProto.FLOAT and node.output[0] not in outputs:
            same[node.output[0]] = node.input[0]
        else:
            kept.append(node)
    replace(graph.node, kept)
    drop_unused(copy.graph)
    return copy


def in_groups(plain: onnx.ModelProto, form: str) -> onnx.ModelProto:
    """Divide attentions with one wide head into `GROUPS` heads, which TensorRT can fuse.

    Fused attentions store no scores. All heads have the same keys and values; each has a part of the queries.
    The result is the same. If ``form`` is not `FORM`, ``plain`` is returned unchanged.
    """
    if form != FORM:
        return plain
    model = onnx.ModelProto()
    model.CopyFrom(plain)
    wires, graph = GraphIndex(onnx.shape_inference.infer_shapes(model)), model.graph
    named = {node.name: node for node in graph.node}
    before: dict[str, list[onnx.NodeProto]] = {}
    after: dict[str, list[onnx.NodeProto]] = {}

    def moved(operator: str, source: str, made: str, shape: tuple[int, ...]) -> onnx.NodeProto:
        graph.initializer.append(helper.make_tensor(f"{made}/shape", TensorProto.INT64, [4], shape))
        return helper.make_node(operator, [source, f"{made}/shape"], [made], f"{made}/{operator}")

    for block in attentions(model):
        score, value = named[block.score], named[block.value]
        biases = [name for name in named[block.bias].input if name != score.output[0]] if block.bias else []
        if (
            wires.shape(score.input[0]) != (1, 1, block.queries, block.head)
            or block.head < WIDE_HEAD
            or block.queries >= FUSED_QUERIES
            or block.queries % GROUPS
            or any(wires.shape(name)[:3] != (1, 1, 1) for name in biases)
        ):
            continue
        parts, result = (1, GROUPS, block.queries // GROUPS, block.head), value.output[0]
        before[score.name], before[value.name] = [], []
        for node, position in ((score, 0), (score, 1), (value, 1)):
            source, made = node.input[position], f"{node.name}/groups{position}"
            operator, shape = (
                ("Expand", (1, GROUPS, *wires.shape(source)[2:])) if position else ("Reshape", parts)
            )
            before[node.name].append(moved(operator, source, made, shape))
            node.input[position] = made
        value.output[0] = f"{result}/groups"
        after[value.name] = [moved("Reshape", value.output[0], result, wires.shape(result))]
    nodes = [one for n in graph.node for one in (*before.get(n.name, ()), n, *after.get(n.name, ()))]
    replace(graph.node, nodes)
    return model


def trt_ready(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy in which every ArgMax or ArgMin of a vector [n] has the input [1,n].

    TensorRT's parser requires two axes.
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
    replace(graph.node, nodes)
    return copy


class _PrecisionAssignment:
    """Assigns a precision to every node of an FP32 graph and inserts Casts between precisions."""

    def __init__(self, name: str, model: onnx.ModelProto, form: str) -> None:
        self._name = name
        self._model = onnx.shape_inference.infer_shapes(model, strict_mode=True)
        graph, found = self._model.graph, attentions(model)
        self._kept = float32_nodes(self._model).union(*(float32_parts(one, form) for one in found))
        # The factors of products that sum in FP32 are rounded to FP16. Kernels fuse this form, and TF32 does
        # not change such products.
        self._narrowed = {one.value if form == "fused_fp32" else one.score for one in found}
        self._fused = self._narrowed if form == "fused_fp32" else set()
        self._weights = {tensor.name: tensor for tensor in graph.initializer}
        self._floats = {
            key for key, kind in GraphIndex(self._model).types.items() if kind.elem_type == TensorProto.FLOAT
        } | {key for key, tensor in self._weights.items() if tensor.data_type == TensorProto.FLOAT}
        self._types: dict[str, int] = {info.name: TensorProto.FLOAT for info in graph.input}
        self._nodes: list[onnx.NodeProto] = []
        self._new_weights: dict[str, onnx.TensorProto] = {}
        self._casts: dict[tuple[str, int], str] = {}

    def typed(self) -> onnx.ModelProto:
        graph = self._model.graph
        outputs = {info.name for info in graph.output}
        for node in graph.node:
            precision = TensorProto.FLOAT if node.name in self._kept else TensorProto.FLOAT16
            float_only = FLOAT_ONLY_INPUTS.get(node.op_type, ())
            for i, source in enumerate(node.input):
                if source in self._floats:
                    given = self._as(source, TensorProto.FLOAT16) if node.name in self._narrowed else source
                    node.input[i] = self._as(given, TensorProto.FLOAT if i in float_only else precision)
            self._nodes.append(node)
            for i, made in enumerate(node.output):
                if made not in self._floats:
                    continue
                if made in outputs and precision == TensorProto.FLOAT16:
                    node.output[i] = f"{made}/fp16"
                    self._casts[made, TensorProto.FLOAT16] = node.output[i]
                    self._nodes.append(_cast(node.output[i], made, TensorProto.FLOAT))
                    self._types[made] = TensorProto.FLOAT
                elif node.name in self._fused and made not in outputs:
                    # The result is rounded to FP16 even if an FP32 node follows, because kernels fuse only
                    # this form.
                    node.output[i] = f"{made}/product"
                    self._nodes.append(_cast(node.output[i], made, TensorProto.FLOAT16))
                    self._types[made] = TensorProto.FLOAT16
                else:
                    self._types[made] = precision
        others = [t for t in graph.initializer if t.name not in self._floats]
        del graph.node[:], graph.initializer[:], graph.value_info[:]
        graph.node.extend(self._nodes)
        graph.initializer.extend([*others, *self._new_weights.values()])
        return self._model

    def _as(self, name: str, to: int) -> str:
        """Return the name of tensor ``name`` in the type ``to``; the first call adds a Cast or a weight."""
        if name in self._weights:
            return self._weight(name, to)
        if self._types[name] == to:
            return name
        if (name, to) not in self._casts:
            made = f"{name}/{'fp16' if to == TensorProto.FLOAT16 else 'float32'}"
            self._nodes.append(_cast(name, made, to))
            self._casts[name, to], self._types[made] = made, to
        return self._casts[name, to]

    def _weight(self, name: str, to: int) -> str:
        typed = name if to == TensorProto.FLOAT else f"{name}/fp16"
        if typed not in self._new_weights:
            value = numpy_helper.to_array(self._weights[name])
            if to == TensorProto.FLOAT16:
                value = self._rounded(name, value)
            self._new_weights[typed], self._types[typed] = numpy_helper.from_array(value, typed), to
        return typed

    def _rounded(self, name: str, value: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            fp16 = value.astype(np.float16)
        if not np.array_equal(np.isfinite(fp16), np.isfinite(value)):
            worst = float(np.abs(value[np.isfinite(value)]).max())
            raise InputError(
                f"{self._name}: weight {name} reaches {worst:.6g}, the limit of FP16 is 65504;"
                " keep this graph in FP32"
            )
        if value.any() and not fp16.any():
            raise InputError(
                f"{self._name}: weight {name} is at most {np.abs(value).max():.3g}, which is 0 in FP16;"
                " keep this graph in FP32"
            )
        return fp16


def _cast(source: str, made: str, to: int) -> onnx.NodeProto:
    return helper.make_node("Cast", [source], [made], f"{made}/Cast", to=to)
