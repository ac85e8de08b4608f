"""FP16 graphs against FP32 in an interpreter that overflows as FP16 does."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnxruntime
import pytest
from fp16_models import model
from onnx import TensorProto, helper
from support.clip import clip
from support.fp16_interpreter import LiteralGraph

from efftam_ros.runtime.bundle import default_bundle
from efftam_ros.runtime.device.memory import GRAPHS, MemoryLayout
from efftam_ros.runtime.preprocess import no_prompt
from efftam_ros.runtime.verify import relative_error
from efftam_workshop.agreement.compare import Chain, compare_clip, compare_graphs, key_bias, seeded_chain
from efftam_workshop.agreement.runners import Runner
from efftam_workshop.export.fp16.convert import load_graphs, to_fp16

LIMIT = 5e-3
"""What FP16's three digits leave of a sound network's outputs, relative."""


def literal(graphs: Mapping[str, onnx.ModelProto]) -> dict[str, Runner]:
    """Runners of these graphs in the interpreter."""
    return {name: LiteralGraph(model) for name, model in graphs.items()}


@pytest.fixture(scope="module")
def graphs():
    return load_graphs(default_bundle())


@pytest.fixture(scope="module")
def half(graphs) -> dict[str, Runner]:
    return literal({name: to_fp16(model, name) for name, model in graphs.items()})


@pytest.fixture(scope="module")
def chain(graphs) -> Chain:
    return seeded_chain(default_bundle(), literal(graphs))


def onnxruntime_runner(graph: onnx.ModelProto):
    session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(names, dict(inputs)), strict=True))


def test_the_interpreter_computes_fp32_graphs_as_onnxruntime_does(graphs, chain):
    for name in GRAPHS:
        for output, expected in onnxruntime_runner(graphs[name])(chain.inputs[name]).items():
            got = chain.results[name][output]
            assert got.shape == expected.shape
            assert relative_error(expected, got) < 1e-5, f"{name} {output}"


def test_the_interpreter_overflows_where_fp16_does():
    nodes = [
        helper.make_node("Cast", ["x"], ["half"], to=TensorProto.FLOAT16),
        helper.make_node("MatMul", ["half", "half"], ["large"]),
        helper.make_node("Mul", ["large", "small"], ["scaled"]),
        helper.make_node("Cast", ["scaled"], ["y"], to=TensorProto.FLOAT),
    ]
    graph = model(nodes, {"x": [1, 1]}, {"y": [1, 1]}, {"small": np.float16(0.001)})
    x = {"x": np.full((1, 1), 300, np.float32)}
    assert np.isinf(LiteralGraph(graph)(x)["y"])
    assert np.isfinite(LiteralGraph(graph)({"x": np.full((1, 1), 250, np.float32)})["y"])


def test_a_layer_norm_in_fp16_is_computed_in_fp32():
    nodes = [
        helper.make_node("Cast", ["x"], ["half"], to=TensorProto.FLOAT16),
        helper.make_node("LayerNormalization", ["half", "one", "zero"], ["normed"], axis=-1),
        helper.make_node("Cast", ["normed"], ["y"], to=TensorProto.FLOAT),
    ]
    weights = {"one": np.ones(4, np.float16), "zero": np.zeros(4, np.float16)}
    graph = model(nodes, {"x": [1, 4]}, {"y": [1, 4]}, weights)
    x = np.array([[-3000, 3000, -3000, 3000]], np.float32)  # squares of 9e6
    assert np.allclose(LiteralGraph(graph)({"x": x})["y"], [[-1, 1, -1, 1]], atol=1e-3)


def test_every_output_of_the_shipped_network_keeps_its_digits(chain, half):
    found = compare_graphs(chain, half)
    assert {(d.graph, d.output) for d in found} == {
        (name, output) for name in GRAPHS for output in default_bundle().graphs[name].outputs
    }
    assert [d for d in found if not d.relative < LIMIT] == []
    converted = {d.output: d.relative for d in found}
    assert converted["features"] > 1e-5, "nothing was rounded: the graph is not in FP16"
    assert converted["prompt_raster"] == 0.0, "prompt coordinates are FP32"


def test_a_chain_attends_to_its_own_first_and_latest_frames():
    bundle = default_bundle()
    stored = iter(range(1, 9))

    def runner(name):
        def run(inputs):
            value = next(stored) if name == "memory_encoder" else 0
            return {
                key: np.full(
                    [1 if isinstance(axis, str) else axis for axis in tensor.shape], value, np.float32
                )
                for key, tensor in bundle.graphs[name].outputs.items()
            }

        return run

    chain = Chain(bundle, {name: runner(name) for name in GRAPHS})
    image = np.zeros((1, 3, 192, 192), np.float32)
    chain.decode(image, no_prompt(192))
    for number in range(3):
        chain.remember(0, prompted=number == 0)
    chain.decode(image, None)
    attended = chain.inputs["memory_attention_fixed"]
    assert attended["maps"][:, 0, 0].tolist() == [3, 2, 0, 0, 0, 0, 1]
    assert attended["pointers"][:4, 0].tolist() == [1, 3, 2, 0]
    expected = key_bias(MemoryLayout.of(bundle), [6, 0, 1], 3)
    assert np.array_equal(attended["key_bias"], expected)
    chain.decode(image, no_prompt(192))
    chain.remember(0, prompted=True)
    chain.decode(image, None)
    assert chain.inputs["memory_attention_fixed"]["maps"][:, 0, 0].tolist() == [0, 0, 0, 0, 0, 0, 4]


@pytest.mark.parametrize(
    ("frames", "worst"), [(3, 0.99), pytest.param(30, 0.98, marks=pytest.mark.slow)], ids=["short", "long"]
)
def test_a_chained_clip_agrees(graphs, half, frames, worst):
    scene = clip(frames)
    pictures = [frame.bgr for frame in scene]
    agreement = compare_clip(default_bundle(), literal(graphs), half, pictures, scene[0].box)
    assert len(agreement.overlaps) == frames
    assert agreement.mean >= 0.99
    assert agreement.worst >= worst
    assert max(agreement.deviations) > 1e-5
    assert frames > 3 or max(agreement.deviations) < 0.01
