"""What TensorRT's compiler makes of the graphs: they build, and attention is fused with FP32 sums."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import onnx
import pytest
from fp16_models import transformer, wide_attention
from support import rtx_layers
from support.rtx_layers import build_report, float_products, fused_with_fp16_sums, plain_fp32_products

from efftam_ros.core.errors import BackendError
from efftam_ros.runtime.bundle import Bundle, default_bundle
from efftam_ros.runtime.device.memory import GRAPHS as DEVICE_GRAPHS
from efftam_ros.runtime.tensorrt.engine_set import profiles_of
from efftam_workshop.export.fp16.convert import plain_graph, to_fp16

GRAPHS = sorted(default_bundle().graphs)
FUSABLE = {"prompt_encoder": 1, "mask_decoder": 6, "memory_attention": 4, "memory_attention_fixed": 4}


def report_of(bundle: Bundle, name: str, form: str | None, capability: str = "SM86"):
    """``form``: "float32" for the FP32 graph, None for the default form."""
    graph = onnx.load(bundle.graphs[name].path)
    ready = plain_graph(graph) if form == "float32" else to_fp16(graph, name, form or "")
    return build_report(ready, capability, profiles_of(bundle.graphs[name].inputs))


@cache
def shipped(name: str, form: str | None = None):
    return report_of(default_bundle(), name, form)


@pytest.mark.slow
@pytest.mark.parametrize("name", GRAPHS)
def test_every_shipped_graph_builds_in_fp32(name):
    report = shipped(name, "float32")
    assert report.layers
    assert "Half" not in {kind for layer in report.layers for kind in (*layer.inputs, *layer.outputs)}


@pytest.mark.parametrize("name", GRAPHS)
def test_every_shipped_graph_builds_in_fp16_with_attention_fused_and_fp32_sums(name):
    report = shipped(name)
    assert "Half" in {kind for layer in report.layers for kind in (*layer.inputs, *layer.outputs)}
    assert fused_with_fp16_sums(report) == []
    assert len(report.softmax) == len(report.fused) == FUSABLE.get(name, 0)
    assert report.unfused() == []
    assert {(fused.score_sums, fused.value_sums) for fused in report.fused} <= {("FP32", "FP32")}


def test_sums_in_fp16_are_caught():
    report = shipped("memory_attention_fixed", "all_fp16")
    assert len(fused_with_fp16_sums(report)) == 4
    assert {fused.score_sums for fused in report.fused} == {"FP16"}


def test_unfused_fp32_is_not_fused_and_its_scores_are_multiplied_with_tf32():
    report = shipped("memory_attention_fixed", "unfused_fp32")
    assert report.fused == ()
    assert len(report.unfused()) == len(float_products(report)) == 4
    assert report.tf32
    assert plain_fp32_products(report) == []
    assert len(plain_fp32_products(replace(report, tf32=False))) == 4


def test_coordinates_are_multiplied_without_tf32():
    assert not shipped("prompt_encoder").tf32


@pytest.mark.parametrize(("form", "sums"), [("fused_fp32", ["FP32"] * 3), ("all_fp16", ["FP16"] * 3)])
def test_blocks_as_the_encoders_are_fused_as_their_form_says(form, sums):
    report = build_report(to_fp16(transformer(3), "encoder", form))
    assert [fused.score_sums for fused in report.fused] == sums


@pytest.mark.parametrize("capability", rtx_layers.CAPABILITIES)
def test_one_wide_head_is_fused_with_fp32_sums_because_its_queries_come_in_groups(capability):
    """Those of the memory attention of an official network at 512 x 512: no score is stored."""
    graph = wide_attention(queries=1024, keys=7232)
    report = build_report(to_fp16(graph, "attention"), capability)
    assert [fused.score_sums for fused in report.fused] == ["FP32"]
    for form in ("all_fp16", "unfused_fp32"):
        assert build_report(to_fp16(graph, "attention", form), capability).fused == ()


def test_an_operator_that_the_real_parser_does_not_know_is_told_in_one_line():
    graph = transformer(1)
    graph.graph.node[0].op_type = "NoSuchOperator"
    with pytest.raises(BackendError, match=r"can't parse .*export the bundle again") as refusal:
        build_report(graph)
    assert "\n" not in str(refusal.value)


@pytest.mark.slow
def test_no_module_of_an_official_network_multiplies_fp32_without_tensor_cores(golden_bundle: Path):
    """But the prompt encoder, whose coordinates must stay exact."""
    bundle = Bundle.load(golden_bundle)
    reports = {name: report_of(bundle, name, None) for name in DEVICE_GRAPHS if name != "prompt_encoder"}
    assert [name for name, report in reports.items() if plain_fp32_products(report)] == []
    unfused = report_of(bundle, "memory_attention_fixed", "unfused_fp32")
    assert plain_fp32_products(unfused) == []
    assert len(plain_fp32_products(replace(unfused, tf32=False))) == 8


@pytest.mark.slow
@pytest.mark.parametrize("capability", rtx_layers.CAPABILITIES)
def test_an_official_network_is_fused_with_fp32_sums_on_every_gpu(golden_bundle: Path, capability):
    bundle = Bundle.load(golden_bundle)
    for name, attentions in (("image_encoder", 12), ("mask_decoder", 7), ("memory_attention_fixed", 8)):
        report = report_of(bundle, name, None, capability)
        assert fused_with_fp16_sums(report) == []
        assert len(report.fused) == attentions, name
    assert len(fused_with_fp16_sums(report_of(bundle, "image_encoder", "all_fp16", capability))) == 12
