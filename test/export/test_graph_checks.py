"""Exported graphs are what every runtime takes: no control flow, shapes free of data, whole layer norms."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
import torch
from onnx import TensorProto, helper

from efftam_workshop.export.onnx.bundle import graph_faults
from efftam_workshop.export.onnx.graphs import build_graphs


@pytest.mark.parametrize("family", ["compact", "official"])
def test_exported_graphs_are_without_fault(bundle, family):
    for path in bundle(family).glob("*.onnx"):
        assert graph_faults(path) == [], path.name


@pytest.mark.parametrize("family", ["compact", "official"])
def test_every_layer_norm_is_one_operator(bundle, network, family):
    for graph in build_graphs(network(family)):
        calls = 0

        def count(module: torch.nn.Module, *_: object) -> None:
            nonlocal calls
            calls += isinstance(module, torch.nn.LayerNorm)

        hook = torch.nn.modules.module.register_module_forward_hook(count)
        with torch.inference_mode():
            graph.function(network(family), *graph.inputs.values())
        hook.remove()
        nodes = onnx.load(bundle(family) / f"{graph.name}.onnx", load_external_data=False).graph.node
        assert sum(node.op_type == "LayerNormalization" for node in nodes) == calls, graph.name


def test_a_layer_norm_written_out_is_found(tmp_path):
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[1]),
        helper.make_node("Sub", ["x", "mean"], ["y"], name="centre"),
    ]
    assert graph_faults(_save(tmp_path, nodes, [1, 8], rank=2)) == ["decomposed layer norm: centre"]


def test_a_shape_that_depends_on_data_is_found(tmp_path):
    nodes = [
        helper.make_node("Cast", ["x"], ["size"], to=TensorProto.INT64),
        helper.make_node("ConstantOfShape", ["size"], ["y"], name="made"),
    ]
    assert graph_faults(_save(tmp_path, nodes, [2], rank=2)) == [
        "data-dependent shape: ConstantOfShape made takes size from the data"
    ]


def test_a_shape_that_depends_on_shapes_is_none(tmp_path):
    nodes = [
        helper.make_node("Shape", ["x"], ["size"]),
        helper.make_node("ConstantOfShape", ["size"], ["y"], name="made"),
    ]
    assert graph_faults(_save(tmp_path, nodes, ["T"])) == []


def test_control_flow_is_found(tmp_path):
    branch = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["z"])],
        "branch",
        [],
        [helper.make_tensor_value_info("z", 1, [1])],
    )
    nodes = [
        helper.make_node("Cast", ["x"], ["flag"], to=TensorProto.BOOL),
        helper.make_node("If", ["flag"], ["y"], name="choice", then_branch=branch, else_branch=branch),
    ]
    assert graph_faults(_save(tmp_path, nodes, [1])) == ["control flow: If choice"]


def _save(folder: Path, nodes: list[onnx.NodeProto], shape: list[int | str], rank: int = 1) -> Path:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["any"] * rank)
    model = helper.make_model(
        helper.make_graph(nodes, "test", [x], [y]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    path = folder / "graph.onnx"
    onnx.save(model, path)
    return path
