"""The comparison of graphs with PyTorch: small for good graphs, and it names what is wrong with a bad one."""

from __future__ import annotations

import shutil

import numpy as np
import onnx
import pytest
from export_helpers import compact_network
from onnx import numpy_helper

from efftam_ros.core.errors import InputError
from efftam_ros.runtime.bundle import Bundle
from efftam_workshop.agreement.compare import GraphDeviation
from efftam_workshop.export.onnx import parity
from efftam_workshop.export.onnx.parity import compare_with_network, require_parity
from efftam_workshop.export.onnx.weights import prepare


@pytest.mark.parametrize("family", ["compact", "official"])
def test_every_output_agrees_with_pytorch(bundle, network, family):
    exported = Bundle.load(bundle(family))
    differences = compare_with_network(exported, network(family))
    compared = {(d.graph, d.output) for d in differences}
    for name, graph in exported.graphs.items():
        assert {(name, output) for output in graph.outputs} <= compared
    assert max(d.max_abs for d in differences) < 2e-4
    assert all(d.largest > 0 for d in differences if d.output in ("masks", "map", "boxes", "areas"))


def test_float16_weights_are_compared_with_the_rounded_network(bundle):
    rounded = prepare(compact_network(), "float16")
    differences = compare_with_network(Bundle.load(bundle("compact", "float16")), rounded)
    assert max(d.max_abs for d in differences) < 1e-4


@pytest.mark.parametrize(
    ("graph", "weight", "change", "starts", "case"),
    [
        (
            "memory_encoder",
            "no_pointer",
            lambda old: old + 0.25,
            "output stored_pointer differs from PyTorch's by 0.25",
            "absent",
        ),
        (
            "prompt_encoder",
            "prompt_encoder.dense.0.weight",
            lambda old: old * np.array([-1, 1, 1], np.float32)[:, None, None],
            "output dense",
            "mask",
        ),
    ],
    ids=["no pointer", "what only a drawn mask meets"],
)
def test_a_changed_weight_is_found_in_its_graph_output_and_case(
    bundle, network, tmp_path, graph, weight, change, starts, case
):
    folder = shutil.copytree(bundle("compact"), tmp_path / "changed")
    changed, path = Bundle.load(folder), folder / f"{graph}.onnx"
    model = onnx.load(path)
    tensor = next(tensor for tensor in model.graph.initializer if tensor.name == weight)
    tensor.CopyFrom(numpy_helper.from_array(change(numpy_helper.to_array(tensor)), tensor.name))
    onnx.save(model, path)
    with pytest.raises(InputError, match="the bundle was not written") as refusal:
        require_parity(compare_with_network(changed, network("compact")))
    assert str(refusal.value).startswith(f"{graph}: {starts}")
    assert f"({case}); at most 0.001 is allowed" in str(refusal.value)


def test_of_the_cases_of_an_output_the_worst_is_told(bundle, network, monkeypatch):
    exported = Bundle.load(bundle("compact"))
    cases = [
        GraphDeviation("mask_decoder", "masks", 0.1, off, 9.0, name)
        for name, off in [("box", 2.0), ("no", 1.0)]
    ]
    monkeypatch.setattr(parity._Comparison, "graphs", lambda self: iter(cases))
    found = compare_with_network(exported, network("compact"))
    assert [one.case for one in found] == ["box"]


def test_the_worst_output_is_named_and_not_a_number_is_worse_than_any():
    good = GraphDeviation("image_encoder", "features", 3e-7, 1e-6, 3.0, "noise")
    bad = GraphDeviation("mask_decoder", "masks", 0.1, 0.5, 9.0, "box")
    broken = GraphDeviation("memory_encoder", "map", float("inf"), float("nan"), 1.0, "absent")
    require_parity([good])
    with pytest.raises(InputError, match=r"mask_decoder: output masks"):
        require_parity([good, bad])
    with pytest.raises(InputError, match=r"memory_encoder: output map"):
        require_parity([bad, broken, good])
