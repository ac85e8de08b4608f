"""TensorRT 10.3 (JetPack 6.2) may refuse LayerNormalization: every graph builds there all the same."""

from __future__ import annotations

from functools import cache

import numpy as np
import onnx
import onnxruntime
import pytest
from fp16_models import tokens, transformer
from runtime.cuda.fake_cuda import FakeGpu
from runtime.tensorrt.fake_tensorrt import MAGIC, header_of, make_fake
from support.fp16_interpreter import LiteralGraph
from support.rtx_layers import build_report, fused_with_fp16_sums

from efftam_ros.core.errors import BackendError
from efftam_ros.export.fp16.convert import load_graphs, to_fp16
from efftam_ros.export.tensorrt.builder import build_graph
from efftam_ros.export.tensorrt.normalization import without_layer_normalization
from efftam_ros.runtime.bundle import default_bundle
from efftam_ros.runtime.cuda.api import Cuda, open_device
from efftam_ros.runtime.device.memory import GRAPHS
from efftam_ros.runtime.tensorrt.engine_set import engine_options
from efftam_ros.runtime.tensorrt.library import RTX, TENSORRT, Library, load_library
from efftam_ros.runtime.verify.compare import deviation
from efftam_ros.runtime.verify.runners import CpuRunner

try:
    load_library(RTX)
    missing = ""
except BackendError as error:
    missing = str(error)

NORMALISED = ("prompt_encoder", "memory_attention_fixed", "mask_decoder", "memory_encoder")


@cache
def graphs() -> dict[str, onnx.ModelProto]:
    return load_graphs(default_bundle())


def operators(model: onnx.ModelProto) -> set[str]:
    return {node.op_type for node in model.graph.node}


def built(version: str, name: str, precision: str) -> tuple[dict, onnx.ModelProto]:
    """Header of an engine of this fake TensorRT, and the graph that its parser accepted."""
    gpu = FakeGpu()
    library = Library.of(make_fake(version, gpu), TENSORRT)
    model = graphs()[name] if precision == "fp32" else to_fp16(graphs()[name], name)
    options = engine_options(default_bundle(), precision, name)
    plan = build_graph(library, model, options, device=open_device(Cuda(gpu.driver)))
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
        assert deviation(values, got[output]) < 1e-5, output


def test_its_squares_stay_in_fp32():
    """Those of FP16 overflow from 256 on."""
    inputs = {"x": 1000 * tokens()["x"]}
    model = to_fp16(transformer(1), "test")
    wanted, got = (LiteralGraph(one)(inputs)["y"] for one in (model, without_layer_normalization(model)))
    assert np.isfinite(got).all()
    assert deviation(wanted, got) < 2e-3


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


@pytest.mark.parametrize("name", NORMALISED)
def test_newer_ones_get_it_as_it_is(name):
    header, model = built("10.7.0", name, "fp16")
    assert header["strong"]
    assert "LayerNormalization" in operators(model)


@pytest.mark.skipif(bool(missing), reason=missing)
@pytest.mark.parametrize(("name", "attentions"), [("mask_decoder", 6), ("memory_attention_fixed", 4)])
def test_tensorrt_s_compiler_takes_the_graph_without_it_and_fuses_attention_all_the_same(name, attentions):
    model = without_layer_normalization(to_fp16(graphs()[name], name))
    report = build_report(model, "SM86", engine_options(default_bundle(), "fp16", name))
    assert len(report.fused) == attentions
    assert fused_with_fp16_sums(report) == []
