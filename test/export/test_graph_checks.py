"""Exported graphs are what every runtime takes: no control flow, whole layer norms."""

from __future__ import annotations

import onnx
import pytest
import torch

from efftam_workshop.export.onnx.graphs import build_graphs

REFUSED = {
    *("If", "Loop", "Scan", "SequenceMap"),  # control flow
    *("NonZero", "Compress", "Unique", "NonMaxSuppression"),  # shapes that depend on data
    *("ReduceMean", "ReduceVariance"),  # a layer norm that is written out sums squares in FP16
}


@pytest.mark.parametrize("family", ["compact", "official"])
def test_exported_graphs_have_standard_operators_without_control_flow(bundle, family):
    for path in bundle(family).glob("*.onnx"):
        nodes = onnx.load(path, load_external_data=False).graph.node
        assert {node.op_type for node in nodes}.isdisjoint(REFUSED), path.name
        assert {node.domain for node in nodes} == {""}, path.name


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
