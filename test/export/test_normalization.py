"""TensorRT 10.3 (JetPack 6.2) may refuse LayerNormalization: every graph builds there all the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from fp16_models import tokens, transformer
from runtime.tensorrt.fake_tensorrt import MAGIC, header_of, make_fake
from support.fp16_interpreter import LiteralGraph
from support.rtx_layers import build_report, fused_with_fp16_sums, rtx_library

from efftam_ros.runtime.bundle import Tensor, default_bundle
from efftam_ros.runtime.device.memory import GRAPHS
from efftam_ros.runtime.tensorrt.engine_set import ShapeRange, profiles_of
from efftam_ros.runtime.tensorrt.library import Library
from efftam_ros.runtime.verify import relative_error
from efftam_workshop.agreement.runners import CpuRunner
from efftam_workshop.export.fp16.convert import load_graphs, plain_graph, to_fp16
from efftam_workshop.export.onnx.graphs import build_graphs
from efftam_workshop.export.onnx.trace import Tracer
from efftam_workshop.export.onnx.weights import prepare
from efftam_workshop.export.tensorrt.builder import build_engine, parsed
from efftam_workshop.export.tensorrt.normalization import without_layer_normalization
from efftam_workshop.model.efficienttam.configurations import CONFIGURATIONS
from efftam_workshop.model.efficienttam.network import EfficientTAM

NORMALISED = ("prompt_encoder", "memory_attention_fixed", "mask_decoder", "memory_encoder")


@cache
def graphs() -> dict[str, onnx.ModelProto]:
    return load_graphs(default_bundle())


def operators(model: onnx.ModelProto) -> set[str]:
    return {node.op_type for node in model.graph.node}


ATTENTION = "memory_attention_fixed"
OFFICIAL = [
    *(("efficienttam_ti", graph) for graph in GRAPHS),
    ("efficienttam_s_1", "image_encoder"),
    ("efficienttam_s_1", ATTENTION),
    ("efficienttam_ti_2", ATTENTION),
]
"""Of the eight configurations the graphs that differ in more than size: two widths of the image encoder,
three kinds of keys of the memory attention."""


@cache
def official(name: str) -> dict[str, partial[onnx.ModelProto]]:
    """How the graphs of an official configuration are made, with seeded weights, small: of each kind of block
    there is one, windowed and global ones of the image encoder."""
    torch.manual_seed(3)
    network = EfficientTAM(replace(CONFIGURATIONS[name], side=64)).eval()
    trunk, memory = network.image_encoder.trunk, network.memory_attention
    trunk.blocks, memory.layers = trunk.blocks[1:3], memory.layers[:1]
    tracer = Tracer(network := prepare(network))
    return {graph.name: partial(tracer.trace, graph) for graph in build_graphs(network)}


@cache
def small_official(name: str, graph: str) -> onnx.ModelProto:
    return plain_graph(official(name)[graph]())


def built(version: str, name: str, precision: str) -> tuple[dict, onnx.ModelProto]:
    profiles = profiles_of(default_bundle().graphs[name].inputs)
    return built_of(graphs()[name], version, name, precision, profiles)


def built_of(
    plain: onnx.ModelProto, version: str, name: str, precision: str, profiles: Sequence[ShapeRange]
) -> tuple[dict, onnx.ModelProto]:
    """Header of an engine of this fake TensorRT, and the graph that its parser accepted."""
    model = plain if precision == "fp32" else to_fp16(plain, name)
    plan = build_engine(Library.of(make_fake(version)), model, precision, profiles)
    return header_of(plan), onnx.load_from_string(plan[len(MAGIC) :].split(b"\n", 1)[1])


def seeded(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    random = np.random.default_rng(4)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found = {}
    for tensor in session.get_inputs():
        shape = [axis if isinstance(axis, int) else 2 for axis in tensor.shape]
        values = random.normal(0, 1, shape)
        found[tensor.name] = values.astype(np.int64 if "int64" in tensor.type else np.float32)
    return found


@pytest.mark.parametrize("name", NORMALISED)
def test_a_graph_without_it_computes_the_same(name):
    plain = graphs()[name]
    simple = without_layer_normalization(plain)
    assert "LayerNormalization" in operators(plain)
    assert "LayerNormalization" not in operators(simple)
    inputs = seeded(plain)
    wanted, got = (CpuRunner(model.SerializeToString())(inputs) for model in (plain, simple))
    for output, values in wanted.items():
        assert relative_error(values, got[output]) < 1e-5, output


def test_its_squares_stay_in_fp32():
    """Those of FP16 overflow from 256 on."""
    inputs = {"x": 1000 * tokens()["x"]}
    model = to_fp16(transformer(1), "test")
    wanted, got = (LiteralGraph(one)(inputs)["y"] for one in (model, without_layer_normalization(model)))
    assert np.isfinite(got).all()
    assert relative_error(wanted, got) < 2e-3


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("name", GRAPHS)
def test_every_graph_builds_under_the_rules_of_tensorrt_10_3(name, precision):
    header, model = built("10.3.0", name, precision)
    assert header["flags"] == ["TF32"] * header["tf32"], "no flag allows another precision"
    refused = name in NORMALISED
    if precision == "fp16":
        assert header["strong"]
        assert "LayerNormalization" not in operators(model)
    else:
        assert header["strong"] is not refused
        assert ("LayerNormalization" in operators(model)) is refused


@pytest.mark.parametrize(("name", "graph"), OFFICIAL)
def test_every_graph_of_the_official_networks_builds_there_and_computes_the_same(name, graph):
    plain = small_official(name, graph)
    shapes = {info.name: info.type.tensor_type.shape.dim for info in plain.graph.input}
    profiles = profiles_of(
        {
            one: Tensor("float32", tuple(d.dim_param or d.dim_value for d in dims))
            for one, dims in shapes.items()
        }
    )
    for precision in ("fp32", "fp16"):
        header, model = built_of(plain, "10.3.0", graph, precision, profiles)
        assert header["flags"] == ["TF32"] * header["tf32"]
        assert header["strong"] is (precision == "fp16"), "of FP32 the network without types"
        assert ("LayerNormalization" in operators(model)) is (precision == "fp32")
    inputs = seeded(plain)
    wanted, got = (
        CpuRunner(model.SerializeToString())(inputs) for model in (plain, without_layer_normalization(plain))
    )
    for output, values in wanted.items():
        assert relative_error(values, got[output]) < 1e-4, output


@pytest.mark.parametrize("name", NORMALISED)
def test_newer_ones_get_it_as_it_is(name):
    header, model = built("10.7.0", name, "fp16")
    assert header["strong"]
    assert "LayerNormalization" in operators(model)


@pytest.mark.parametrize(("name", "graph"), OFFICIAL)
def test_tensorrt_s_own_parser_takes_the_official_graphs_without_it(name, graph):
    library = rtx_library()
    model = without_layer_normalization(to_fp16(small_official(name, graph), graph))
    network, _ = parsed(library, library.start("Builder"), model, "fp16")
    assert network.num_layers > 0


@pytest.mark.parametrize(("name", "attentions"), [("mask_decoder", 6), ("memory_attention_fixed", 4)])
def test_tensorrt_s_compiler_takes_the_graph_without_it_and_fuses_attention_all_the_same(name, attentions):
    model = without_layer_normalization(to_fp16(graphs()[name], name))
    report = build_report(model)
    assert len(report.fused) == attentions
    assert fused_with_fp16_sums(report) == []
