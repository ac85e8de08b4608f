"""FP16 graphs: what is converted, and what stays FP32."""

from __future__ import annotations

from functools import cache

import numpy as np
import onnx
import pytest
from fp16_models import model, transformer, wide_attention
from onnx import TensorProto, helper
from support.fp16_checks import check_fp16
from support.fp16_interpreter import LiteralGraph

from efftam_ros.core.errors import InputError
from efftam_ros.runtime.bundle import default_bundle
from efftam_workshop.agreement.runners import CpuRunner
from efftam_workshop.export.fp16.attention import FORMS, attentions
from efftam_workshop.export.fp16.convert import in_groups, plain_graph, to_fp16, trt_ready
from efftam_workshop.export.fp16.fp32_regions import float32_nodes

GRAPHS = sorted(default_bundle().graphs)


@cache
def shipped(name: str) -> onnx.ModelProto:
    return onnx.load(default_bundle().graphs[name].path)


def fp16_of(graph: onnx.ModelProto, form: str = "fused_fp32") -> onnx.ModelProto:
    return to_fp16(graph, "test", form)


def node(graph: onnx.ModelProto, name: str) -> onnx.NodeProto:
    return next(n for n in graph.graph.node if n.name == name)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", GRAPHS)
def test_every_shipped_graph_becomes_a_sound_fp16_graph_in_every_form(name, form):
    half = to_fp16(shipped(name), name, form)
    assert check_fp16(half, plain_graph(shipped(name)), form) == []


def test_the_graph_given_stays_untouched():
    before = shipped("mask_decoder").SerializeToString()
    to_fp16(shipped("mask_decoder"), "mask_decoder")
    assert shipped("mask_decoder").SerializeToString() == before


def test_every_attention_of_the_shipped_network_is_found():
    assert {name: len(attentions(shipped(name))) for name in GRAPHS} == {
        "image_encoder": 0,
        "mask_decoder": 6,
        "memory_attention": 4,
        "memory_attention_fixed": 4,
        "memory_encoder": 0,
        "prompt_encoder": 1,
    }
    first, cross = attentions(shipped("memory_attention_fixed"))[:2]
    assert (first.queries, first.keys, first.head, first.bias) == (144, 144, 32, "")
    assert (cross.queries, cross.keys, cross.head) == (144, 7 * 144 + 16 * 2, 32)
    assert cross.bias
    assert cross.scale


def test_a_graph_without_attention_gets_the_casts_of_its_interface_alone():
    half = to_fp16(shipped("image_encoder"), "image_encoder")
    assert attentions(half) == []
    assert sum(node.op_type == "Cast" for node in half.graph.node) == 1 + 3


def test_queries_of_one_wide_head_come_in_groups_and_compute_the_same():
    """So that TensorRT fuses the attention (test_rtx_layers)."""
    graph = wide_attention()
    grouped = in_groups(graph, "fused_fp32")
    random = np.random.default_rng(8)
    inputs = {
        i.name: random.normal(0, 1, [d.dim_value for d in i.type.tensor_type.shape.dim]).astype(np.float32)
        for i in graph.graph.input
    }
    wanted, got = (CpuRunner(one.SerializeToString())(inputs)["y"] for one in (graph, grouped))
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5)
    (block,) = attentions(grouped)
    assert (block.queries, block.keys, block.head) == (32, 96, 256)
    assert in_groups(grouped, "fused_fp32") == grouped
    assert check_fp16(fp16_of(graph), grouped, "fused_fp32") == []


@pytest.mark.parametrize(
    "other",
    [
        transformer(1),
        wide_attention(head=128),
        wide_attention(queries=4096),
        wide_attention(queries=63),
    ],
    ids=["narrow heads", "a head of 128", "queries that TensorRT fuses", "an odd number"],
)
def test_other_attentions_stay_as_they_are(other):
    assert in_groups(other, "fused_fp32") == other
    assert in_groups(wide_attention(), "unfused_fp32") == wide_attention()


def test_a_form_can_be_chosen_per_graph():
    name = "memory_attention_fixed"
    assert to_fp16(shipped(name), name, "unfused_fp32") != to_fp16(shipped(name), name)
    assert to_fp16(shipped(name), name, "fused_fp32") == to_fp16(shipped(name), name)
    with pytest.raises(
        InputError, match="form bf16 is unknown; choose one of all_fp16, fused_fp32, unfused_fp32"
    ):
        fp16_of(transformer(1), "bf16")


def count_graph(side: int) -> onnx.ModelProto:
    """The area of a mask, as the decoder computes it."""
    nodes = [
        helper.make_node("Greater", ["logits", "zero"], ["inside"]),
        helper.make_node("Cast", ["inside"], ["ones"], to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["ones", "axes"], ["count"], keepdims=0),
        helper.make_node("Mul", ["count", "pixel"], ["area"]),
    ]
    weights = {"zero": np.float32(0), "pixel": np.float32(16), "axes": np.array([1, 2])}
    return model(nodes, {"logits": [1, side, side]}, {"area": [1]}, weights)


def test_areas_beyond_fp16_come_out_exactly():
    logits = np.full((1, 128, 128), 1e-3, np.float32)
    logits[0, 0, 0] = -1.0
    assert LiteralGraph(fp16_of(count_graph(128)))({"logits": logits})["area"] == 16 * (128 * 128 - 1)


def test_unused_memory_changes_nothing_at_all():
    run = LiteralGraph(to_fp16(shipped("memory_attention_fixed"), "memory_attention_fixed"))
    random = np.random.default_rng(2)
    inputs = {
        name: random.normal(0, 1, tensor.shape).astype(np.float32)
        for name, tensor in default_bundle().graphs["memory_attention_fixed"].inputs.items()
    }
    inputs["key_bias"] = np.zeros_like(inputs["key_bias"])
    inputs["key_bias"][..., 144 * 2 : 144 * 6] = -1e4
    clean = run(inputs)["conditioned"]
    inputs["maps"][2:6] *= 20
    assert np.array_equal(run(inputs)["conditioned"], clean)
    inputs["maps"][0] *= 2
    assert not np.array_equal(run(inputs)["conditioned"], clean)


def product(weight) -> onnx.ModelProto:
    nodes = [helper.make_node("MatMul", ["x", "block.weight"], ["y"])]
    return model(nodes, {"x": [1, 2]}, {"y": [1, 2]}, {"block.weight": np.asarray(weight, np.float32)})


@pytest.mark.parametrize(
    ("weight", "words", "kept"), [(-7e4, "70000.* 65504", -65504), (1e-8, "1e-08", 0)], ids=["beyond", "gone"]
)
def test_a_weight_that_fp16_does_not_have_is_refused_by_name(weight, words, kept):
    with pytest.raises(InputError, match=rf"block.weight.* {words}.* FP32"):
        fp16_of(product([[0, 0], [0, weight]]))
    fp16_of(product([[0, 0], [0, kept]]))


def test_a_softmax_outside_an_attention_is_refused_by_name():
    nodes = [helper.make_node("Softmax", ["x"], ["y"], "/head/Softmax")]
    with pytest.raises(InputError, match="Softmax /head/Softmax is not between two matrix products"):
        fp16_of(model(nodes, {"x": [1, 4]}, {"y": [1, 4]}, {}))


def test_scores_that_are_not_scaled_first_are_refused():
    with pytest.raises(InputError, match=r"/b0.scores/MatMul: queries are not scaled before"):
        fp16_of(transformer(1, scale_first=False))
    fp16_of(transformer(1, scale_first=False), "all_fp16")


def test_queries_may_be_scaled_by_a_division():
    graph = transformer(1, divide=True)
    assert [attention.scale for attention in attentions(graph)] == ["/b0.scaled/Div"]
    assert check_fp16(fp16_of(graph), graph, "fused_fp32") == []


@pytest.mark.parametrize("reduction", ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"])
def test_what_is_reduced_stays_float32_up_to_the_next_product(reduction):
    """Sums leave FP16's range, and what they are of need not come from a comparison."""
    nodes = [
        helper.make_node(reduction, ["x", "axes"], ["r"], "r"),
        helper.make_node("Mul", ["r", "two"], ["scaled"], "scaled"),
        helper.make_node("MatMul", ["scaled", "weight"], ["y"], "product"),
        helper.make_node("Mul", ["y", "two"], ["z"], "after"),
    ]
    weights = {"two": np.float32(2), "weight": np.ones((1, 2), np.float32), "axes": np.array([1])}
    graph = model(nodes, {"x": [1, 4]}, {"z": [1, 2]}, weights)
    assert float32_nodes(onnx.shape_inference.infer_shapes(graph)) == {"r", "scaled"}


def test_coordinates_stay_float32_up_to_their_sines():
    nodes = [
        helper.make_node("MatMul", ["points", "frequencies"], ["phase"]),
        helper.make_node("Sin", ["phase"], ["wave"]),
        helper.make_node("MatMul", ["wave", "mix"], ["y"]),
    ]
    weights = {"frequencies": np.full((2, 8), 40, np.float32), "mix": np.ones((8, 2), np.float32)}
    graph = model(nodes, {"points": [1, 2]}, {"y": [1, 2]}, weights)
    half = fp16_of(graph)
    points = {"points": np.array([[511.3, 17.7]], np.float32)}
    assert np.allclose(LiteralGraph(half)(points)["y"], LiteralGraph(graph)(points)["y"], atol=0.01)
    stored = {tensor.name: tensor.data_type for tensor in half.graph.initializer}
    assert stored == {"frequencies": TensorProto.FLOAT, "mix/fp16": TensorProto.FLOAT16}


@pytest.mark.parametrize("keepdims", [0, 1])
def test_an_argmax_over_a_vector_becomes_one_over_a_row(keepdims):
    nodes = [
        helper.make_node("Reshape", ["x", "length"], ["vector"]),
        helper.make_node("ArgMax", ["vector"], ["best"], axis=0, keepdims=keepdims),
        helper.make_node("Gather", ["vector", "best"], ["y"]),
    ]
    shape = [1] if keepdims else []
    graph = model(nodes, {"x": [3, 1]}, {"y": shape}, {"length": np.array([3])})
    ready = trt_ready(graph)
    onnx.checker.check_model(ready, full_check=True)
    x = {"x": np.array([[1], [5], [3]], np.float32)}
    assert LiteralGraph(ready)(x)["y"].shape == tuple(shape)
    assert LiteralGraph(ready)(x)["y"] == LiteralGraph(graph)(x)["y"] == 5
    argmax = next(n for n in ready.graph.node if n.op_type == "ArgMax")
    inferred = onnx.shape_inference.infer_shapes(ready).graph.value_info
    assert len(next(i for i in inferred if i.name == argmax.input[0]).type.tensor_type.shape.dim) == 2


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("claimed", FORMS)
def test_a_form_is_not_taken_for_another(form, claimed):
    graph = transformer(1)
    assert (check_fp16(fp16_of(graph, form), graph, claimed) == []) == (form == claimed)
