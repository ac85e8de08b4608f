"""TF32 is allowed exactly where it changes no product."""

from __future__ import annotations

from functools import cache

import numpy as np
import onnx
import pytest
from fp16_models import model, tokens, transformer
from onnx import TensorProto, helper, numpy_helper
from support.fp16_interpreter import LiteralGraph

from efftam_ros.runtime.bundle import default_bundle
from efftam_ros.runtime.device.memory import GRAPHS
from efftam_ros.runtime.preprocess import no_prompt
from efftam_ros.runtime.verify import relative_error
from efftam_workshop.export.fp16.convert import load_graphs, to_fp16
from efftam_workshop.export.fp16.fp32_regions import inexact_products, round_to_tf32
from efftam_workshop.export.tensorrt.builder import allows_tf32

FORMS = ("fused_fp32", "unfused_fp32")


@cache
def graphs() -> dict[str, onnx.ModelProto]:
    return load_graphs(default_bundle())


def fp16(name: str, form: str) -> onnx.ModelProto:
    return to_fp16(graphs()[name], name, form)


def test_every_finite_fp16_value_is_exact_in_tf32():
    values = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    values = values[np.isfinite(values)].astype(np.float32)
    assert values.size == 63_488
    assert np.array_equal(round_to_tf32(values).view(np.uint32), values.view(np.uint32))


def test_tf32_has_ten_bits_rounded_to_the_nearest_even():
    one = np.float32(1)
    step = np.float32(2**-10)
    given = np.float32(
        [one + step, one + step / 4, one + step * 3 / 4, one + step / 2, one + step * 3 / 2, -3]
    )
    assert round_to_tf32(given).tolist() == [one + step, one, one + step, one, one + 2 * step, -3]
    special = round_to_tf32(np.float32([np.inf, -np.inf, np.nan]))
    assert special[0] == np.inf
    assert special[1] == -np.inf
    assert np.isnan(special[2])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", GRAPHS)
def test_only_the_prompt_encoders_coordinates_and_graphs_in_fp32_forbid_tf32(name, form):
    found = inexact_products(fp16(name, form))
    assert found == (["/prompt_encoder/MatMul"] if name == "prompt_encoder" else [])
    assert allows_tf32(fp16(name, form)) == (name != "prompt_encoder")
    assert not allows_tf32(graphs()[name])


@pytest.mark.parametrize("form", FORMS)
def test_what_is_allowed_changes_no_bit(form):
    """In an interpreter that rounds the factors of every FP32 product."""
    graph = to_fp16(transformer(2), "test", form)
    assert inexact_products(graph) == []
    assert np.array_equal(LiteralGraph(graph)(tokens())["y"], LiteralGraph(graph, tf32=True)(tokens())["y"])
    plain = transformer(2)
    exact, rounded = (LiteralGraph(plain, tf32=tf32)(tokens())["y"] for tf32 in (False, True))
    assert relative_error(exact, rounded) > 1e-5, "the interpreter rounds nothing"


def test_what_is_forbidden_would_move_the_prompt():
    side = default_bundle().spec.image_side
    prompt = no_prompt(side)
    random = np.random.default_rng(3)
    inputs = {
        "features": np.zeros(default_bundle().graphs["prompt_encoder"].inputs["features"].shape, np.float32),
        "points": random.uniform(0, side, prompt.points.shape).astype(np.float32),
        "labels": np.ones_like(prompt.labels),
        "mask": prompt.mask,
        "has_mask": prompt.has_mask,
    }
    graph = fp16("prompt_encoder", "fused_fp32")
    exact, rounded = (LiteralGraph(graph, tf32=tf32)(inputs)["sparse"] for tf32 in (False, True))
    assert relative_error(exact, rounded) > 2e-4


def product(nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray] | None = None) -> onnx.ModelProto:
    last = helper.make_node("MatMul", ["a", "b"], ["y"], "product")
    return model([*nodes, last], {"x": [2, 2]}, {"y": [2, 2]}, weights or {})


def cast(source: str, made: str, to: int = TensorProto.FLOAT) -> onnx.NodeProto:
    return helper.make_node("Cast", [source], [made], to=to)


HALF = cast("x", "half", TensorProto.FLOAT16)
EXACT, ROUNDED = np.full((2, 2), 1 + 2**-10, np.float32), np.full((2, 2), 1 + 2**-11, np.float32)


@pytest.mark.parametrize(
    ("graph", "is_exact"),
    [
        (product([HALF, cast("half", "a"), cast("half", "b")]), True),
        (
            product(
                [HALF, cast("half", "a"), cast("half", "w"), helper.make_node("Transpose", ["w"], ["b"])]
            ),
            True,
        ),
        (
            product([HALF, cast("half", "a"), cast("half", "w"), helper.make_node("Add", ["w", "w"], ["b"])]),
            False,
        ),
        (product([HALF, cast("half", "a"), helper.make_node("Identity", ["x"], ["b"])]), False),
        (product([HALF, cast("half", "a")], {"b": EXACT}), True),
        (product([HALF, cast("half", "a")], {"b": ROUNDED}), False),
        (product([HALF, cast("half", "a"), cast("stored", "b")], {"stored": EXACT.astype(np.float16)}), True),
        (
            product(
                [HALF, cast("half", "p"), helper.make_node("Concat", ["p", "x"], ["a"], axis=1)], {"b": EXACT}
            ),
            False,
        ),
    ],
    ids=["Casts", "moved", "computed", "an input", "constant", "fine constant", "stored in FP16", "joined"],
)
def test_both_factors_count(graph, is_exact):
    assert inexact_products(graph) == ([] if is_exact else ["product"])


def test_a_product_in_fp16_does_not_matter():
    graph = product([cast("x", "a", TensorProto.FLOAT16)], {"b": ROUNDED.astype(np.float16)})
    graph.graph.node[-1].output[0] = "low"
    graph.graph.node.append(cast("low", "y"))
    assert inexact_products(graph) == []


def test_a_score_scaled_after_its_cast_is_found():
    graph = to_fp16(transformer(1), "test", "unfused_fp32")
    score = next(node for node in graph.graph.node if node.name == "/b0.scores/MatMul")
    at = list(graph.graph.node).index(score)
    graph.graph.initializer.append(numpy_helper.from_array(np.float32(0.1), "late"))
    graph.graph.node.insert(at, helper.make_node("Mul", [score.input[0], "late"], ["scaled"], "late"))
    graph.graph.node[at + 1].input[0] = "scaled"
    assert inexact_products(graph) == ["/b0.scores/MatMul"]
