"""Quantised graphs: which products, how, and what it costs."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from fp16_models import model, tokens, transformer
from onnx import helper, numpy_helper
from support.fp16_checks import check_fp16
from support.rtx_layers import build_report, int8_nodes

from efftam_ros.core.errors import InputError
from efftam_ros.runtime.bundle import Bundle, default_bundle
from efftam_ros.runtime.device.memory import ATTENTION, GRAPHS
from efftam_ros.runtime.verify import relative_error
from efftam_workshop.agreement.runners import CpuRunner
from efftam_workshop.eval.int8 import MAX_AO_DROP, Int8Cost
from efftam_workshop.export import int8
from efftam_workshop.export.fp16.attention import attentions
from efftam_workshop.export.fp16.convert import load_graphs, plain_graph, to_fp16
from efftam_workshop.export.fp16.fp32_regions import inexact_products
from efftam_workshop.export.int8 import (
    default_clip,
    dynamic_inputs,
    quantizable,
    quantize,
    recorded_inputs,
    with_folded_weights,
    write_quantized_bundle,
)
from efftam_workshop.export.tensorrt.engines import ALLOWED


@cache
def quantized() -> onnx.ModelProto:
    return quantize(transformer(2), [tokens()])


def producer(graph: onnx.ModelProto) -> dict[str, onnx.NodeProto]:
    return {name: node for node in graph.graph.node for name in node.output}


def test_products_with_constant_weights_are_quantised_and_no_others():
    graph, made = quantized(), producer(quantized())
    scores = {name for a in attentions(transformer(2)) for name in (a.score, a.value)}
    for node in graph.graph.node:
        if node.op_type == "MatMul":
            kinds = {made[name].op_type if name in made else "" for name in node.input}
            assert ("DequantizeLinear" in kinds) == (node.name not in scores)
            assert kinds == {"DequantizeLinear"} or node.name in scores
    assert len(quantizable(transformer(2))) == 8


def test_quantisation_is_symmetric_per_channel_of_weights_per_tensor_of_activations():
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in quantized().graph.initializer}
    weights = activations = 0
    for node in quantized().graph.node:
        if node.op_type == "QuantizeLinear":
            assert not values[node.input[2]].any()
            assert values[node.input[2]].dtype == np.int8
            size = values[node.input[1]].size
            weights += size == 64 and node.input[0] in values
            activations += size == 1 and node.input[0] not in values
    assert (weights, activations) == (8, 4)


def test_weights_are_folded_first():
    """Exported graphs transpose and slice weights that two graphs share."""
    nodes = [
        helper.make_node("Transpose", ["w"], ["turned"], "turn", perm=[1, 0]),
        helper.make_node("MatMul", ["x", "turned"], ["y"], "product"),
    ]
    weight = np.random.default_rng(1).normal(0, 1, (3, 4)).astype(np.float32)
    graph = model(nodes, {"x": [2, 4]}, {"y": [2, 3]}, {"w": weight})
    folded = with_folded_weights(graph)
    assert [node.op_type for node in folded.graph.node] == ["MatMul"]
    assert np.array_equal(numpy_helper.to_array(folded.graph.initializer[0]), weight.T)
    assert quantizable(graph) == ["product"]
    assert [node.op_type for node in graph.graph.node] == ["Transpose", "MatMul"], (
        "the graph given has changed"
    )


@pytest.mark.parametrize("form", ALLOWED)
def test_a_quantised_graph_becomes_a_sound_fp16_graph_that_keeps_two_digits(form):
    half = to_fp16(quantized(), "test", form)
    assert check_fp16(half, plain_graph(quantized()), form) == []
    assert inexact_products(half) == []
    random = np.random.default_rng(9)
    unseen = {"x": random.normal(0, 1, tokens()["x"].shape).astype(np.float32)}
    wanted = CpuRunner(transformer(2).SerializeToString())(unseen)["y"]
    error = relative_error(wanted, CpuRunner(half.SerializeToString())(unseen)["y"])
    assert 1e-3 < error < 0.1


def test_what_can_not_be_quantised_is_refused():
    with pytest.raises(InputError, match="no calibration inputs"):
        quantize(transformer(1), [])
    nodes = [helper.make_node("MatMul", ["x", "x"], ["y"], "square")]
    with pytest.raises(InputError, match="no product with constant weights"):
        quantize(model(nodes, {"x": [2, 2]}, {"y": [2, 2]}, {}), [{"x": np.ones((2, 2), np.float32)}])


def test_a_clip_is_known_by_pixels_and_box():
    clip = default_clip()
    assert clip.sha256 == default_clip().sha256
    frames = [frame.copy() for frame in clip.frames]
    frames[7][3, 4, 1] ^= 1
    hashes = {
        clip.sha256,
        replace(clip, frames=tuple(frames)).sha256,
        replace(clip, frames=clip.frames[:-1]).sha256,
        replace(clip, box=replace(clip.box, x=clip.box.x + 1)).sha256,
    }
    assert len(hashes) == 4
    assert replace(clip, name="another name").sha256 == clip.sha256
    with pytest.raises(InputError, match="has 1 frames"):
        replace(clip, frames=clip.frames[:1])


def test_calibration_sees_what_the_graphs_get_in_use():
    bundle = default_bundle()
    runners = {name: CpuRunner(bundle.graphs[name].path) for name in GRAPHS}
    clip = replace(default_clip(), frames=default_clip().frames[:3])
    found = recorded_inputs(bundle, runners, clip, ("image_encoder", ATTENTION))
    assert [len(found[name]) for name in ("image_encoder", ATTENTION)] == [3, 2]
    assert set(found[ATTENTION][0]) == set(bundle.graphs[ATTENTION].inputs)
    first, second = dynamic_inputs(found[ATTENTION])
    assert (first["rows"].tolist(), second["rows"].tolist()) == ([6], [0, 6])
    assert [len(one["pointers"]) for one in (first, second)] == [1, 2]
    fixed = runners[ATTENTION](found[ATTENTION][1])["conditioned"]
    free = CpuRunner(bundle.graphs["memory_attention"].path)(second)["conditioned"]
    assert relative_error(fixed, free) < 1e-5


def test_of_a_quantised_bundle_that_can_t_be_written_nothing_is_left(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(int8, "recorded_inputs", lambda *_: {ATTENTION: []})
    with pytest.raises((IndexError, ValueError)):
        write_quantized_bundle(default_bundle(), default_clip(), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_quantised_bundle_loads_with_the_hashes_of_its_new_files(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(int8, "recorded_inputs", lambda *_: {"mask_decoder": []})
    monkeypatch.setattr(int8, "quantizable", lambda model: True)
    monkeypatch.setattr(int8, "quantize", lambda model, inputs: model)
    assert write_quantized_bundle(default_bundle(), default_clip(), tmp_path / "out") == ["mask_decoder"]
    assert Bundle.load(tmp_path / "out").spec == default_bundle().spec


@pytest.mark.parametrize(
    ("ao", "claims", "is_small"),
    [
        ((0.6, 0.6 - MAX_AO_DROP + 1e-9), (0.02, 0.02), True),
        ((0.6, 0.65), (0.02, 0.01), True),
        ((0.6, 0.594), (0.02, 0.02), False),
        ((0.6, 0.6), (0.02, 0.021), False),
        ((0.6, float("nan")), (0.02, 0.02), False),
    ],
)
def test_the_cost_on_sequences_has_limits(ao, claims, is_small):
    cost = Int8Cost(3, ao, claims)
    if is_small:
        cost.require_small()
    else:
        with pytest.raises(InputError, match="build in fp16"):
            cost.require_small()


def test_tensorrts_compiler_multiplies_them_in_int8():
    graphs = load_graphs(default_bundle())
    bundle = default_bundle()
    runners = {name: CpuRunner(bundle.graphs[name].path) for name in GRAPHS}
    clip = replace(default_clip(), frames=default_clip().frames[:3])
    samples = recorded_inputs(bundle, runners, clip, (ATTENTION,))[ATTENTION]
    nodes = quantizable(graphs[ATTENTION])
    assert len(nodes) == 15
    report = build_report(to_fp16(quantize(graphs[ATTENTION], samples), ATTENTION))
    assert int8_nodes(report, nodes) == set(nodes)
    plain = build_report(to_fp16(graphs[ATTENTION], ATTENTION))
    assert int8_nodes(plain, nodes) == set()
