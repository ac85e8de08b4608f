"""A bundle holds what docs/bundle.md promises: graphs, tensors, shared weights under their names.

Its files and their hashes are those of the manifest: test_export_parity loads it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from efftam_ros.runtime.bundle import default_bundle

GRAPHS = {
    "image_encoder": (["image"], ["features"]),
    "prompt_encoder": (
        ["features", "points", "labels", "mask", "has_mask"],
        ["conditioned", "sparse", "dense"],
    ),
    "memory_attention": (["features", "maps", "rows", "pointers"], ["conditioned"]),
    "memory_attention_fixed": (["features", "maps", "pointers", "key_bias"], ["conditioned"]),
    "mask_decoder": (
        ["conditioned", "sparse", "dense"],
        ["masks", "ious", "presence", "pointers", "boxes", "areas"],
    ),
    "memory_encoder": (
        ["features", "mask_logits", "present", "binarize", "pointer"],
        ["map", "stored_pointer"],
    ),
}
FAMILIES = ("compact", "official")


def manifest(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "bundle.json").read_text())


def test_a_compact_bundle_says_of_itself_what_the_one_that_ships_does(bundle):
    """Tensors with skip features and the prompt's raster, axes, and the constants of the protocol."""
    made, ships = manifest(bundle("compact")), manifest(default_bundle().folder)
    said_anew = {"files", "source", "exporter"}
    assert made.keys() == ships.keys() > said_anew
    for key in made.keys() - said_anew:
        assert made[key] == ships[key]


def test_a_bundle_of_an_official_network_has_the_documented_tensors_axes_and_constants(bundle):
    official = manifest(bundle("official"))
    graphs = official["graphs"]
    assert {name: (list(one["inputs"]), list(one["outputs"])) for name, one in graphs.items()} == GRAPHS
    assert list(graphs) == list(GRAPHS)
    assert graphs["prompt_encoder"]["inputs"]["points"]["shape"] == [1, "n", 2]
    assert graphs["prompt_encoder"]["inputs"]["labels"] == {"dtype": "int64", "shape": [1, "n"]}
    assert graphs["prompt_encoder"]["outputs"]["sparse"]["shape"][1] == "t"
    assert graphs["mask_decoder"]["inputs"]["sparse"]["shape"][1] == "t"
    assert graphs["memory_attention"]["inputs"]["maps"]["shape"][0] == "T"
    assert graphs["memory_attention"]["inputs"]["rows"] == {"dtype": "int64", "shape": ["T"]}
    assert graphs["memory_attention"]["inputs"]["pointers"]["shape"][0] == "P"
    fixed = graphs["memory_attention_fixed"]["inputs"].values()
    assert all(isinstance(size, int) for tensor in fixed for size in tensor["shape"])
    assert official["protocol"]["memory_dtype"] == "bfloat16"
    assert official["protocol"]["pointer_tokens"] == 4
    assert official["protocol"]["default_view"] == "auto"
    assert official["image"]["mean"] == [0.485, 0.456, 0.406]


@pytest.mark.parametrize("family", FAMILIES)
def test_both_attention_forms_read_one_weight_file(bundle, family):
    folder = bundle(family)
    used = {}
    for name in ("memory_attention", "memory_attention_fixed"):
        graph = onnx.load(folder / f"{name}.onnx", load_external_data=False).graph
        external = {
            t.name: {entry.key: entry.value for entry in t.external_data}
            for t in graph.initializer
            if t.data_location == onnx.TensorProto.EXTERNAL
        }
        assert {place["location"] for place in external.values()} == {"memory_attention.weights"}
        used[name] = {k: place["offset"] for k, place in external.items() if not k.startswith("constant.")}
    assert used["memory_attention"] == used["memory_attention_fixed"]


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_keep_their_names_and_values(bundle, network, family):
    folder = bundle(family)
    stored = {}
    for path in folder.glob("*.onnx"):
        for tensor in onnx.load(path).graph.initializer:
            stored[tensor.name] = numpy_helper.to_array(tensor)
    state = network(family).state_dict()
    unused = {"no_mem_pos_enc", "image_encoder.trunk.pos_embed"} if family == "official" else set()
    assert state.keys() - stored.keys() == unused
    for name in state.keys() - unused:
        np.testing.assert_array_equal(stored[name], state[name].numpy(), err_msg=name)


REFUSED = {
    *("If", "Loop", "Scan", "SequenceMap"),  # control flow
    *("NonZero", "Compress", "Unique", "NonMaxSuppression"),  # shapes that depend on data
    *("ReduceMean", "ReduceVariance"),  # a layer norm that is written out sums squares in FP16
}


@pytest.mark.parametrize("family", FAMILIES)
def test_graphs_have_standard_operators_that_every_runtime_takes(bundle, family):
    for name in GRAPHS:
        nodes = onnx.load(bundle(family) / f"{name}.onnx", load_external_data=False).graph.node
        operators = {node.op_type for node in nodes}
        assert operators.isdisjoint(REFUSED), name
        assert {node.domain for node in nodes} == {""}, name
        if name not in ("prompt_encoder", "memory_attention"):
            tables = {"Sin", "Cos", "Range", "Shape", "Pow", "ConstantOfShape"}
            assert operators.isdisjoint(tables), "tables are constants, not computed"
