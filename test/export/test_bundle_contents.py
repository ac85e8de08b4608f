"""A bundle holds what docs/bundle.md promises: graphs, tensors, shared weights under their names, hashes."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

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


@pytest.mark.parametrize("family", FAMILIES)
def test_graphs_have_the_documented_tensors(bundle, family):
    manifest = json.loads((bundle(family) / "bundle.json").read_text())
    assert manifest["format"] == 1
    assert list(manifest["graphs"]) == list(GRAPHS)
    extra = {"features_s8", "features_s4", "prompt_raster"} if family == "compact" else set()
    for name, (inputs, outputs) in GRAPHS.items():
        entry = manifest["graphs"][name]
        assert [i for i in entry["inputs"] if i not in extra] == inputs
        assert [o for o in entry["outputs"] if o not in extra] == outputs


def test_skip_features_and_prompt_raster_stand_where_the_network_has_them(bundle):
    graphs = json.loads((bundle("compact") / "bundle.json").read_text())["graphs"]
    assert graphs["image_encoder"]["outputs"]["features_s8"]["shape"] == [1, 64, 24, 24]
    assert graphs["image_encoder"]["outputs"]["features_s4"]["shape"] == [1, 32, 48, 48]
    assert graphs["mask_decoder"]["inputs"]["features_s4"]["shape"] == [1, 32, 48, 48]
    assert graphs["prompt_encoder"]["outputs"]["prompt_raster"]["shape"] == [1, 1, 48, 48]
    assert graphs["memory_encoder"]["inputs"]["prompt_raster"]["shape"] == [1, 1, 48, 48]


@pytest.mark.parametrize(("family", "tokens"), [("compact", 18), ("official", "t")])
def test_dynamic_axes_are_named(bundle, family, tokens):
    graphs = json.loads((bundle(family) / "bundle.json").read_text())["graphs"]
    assert graphs["prompt_encoder"]["inputs"]["points"]["shape"] == [1, "n", 2]
    assert graphs["prompt_encoder"]["inputs"]["labels"] == {"dtype": "int64", "shape": [1, "n"]}
    assert graphs["prompt_encoder"]["outputs"]["sparse"]["shape"][1] == tokens
    assert graphs["mask_decoder"]["inputs"]["sparse"]["shape"][1] == tokens
    assert graphs["memory_attention"]["inputs"]["maps"]["shape"][0] == "T"
    assert graphs["memory_attention"]["inputs"]["rows"] == {"dtype": "int64", "shape": ["T"]}
    assert graphs["memory_attention"]["inputs"]["pointers"]["shape"][0] == "P"
    fixed = [
        size for tensor in graphs["memory_attention_fixed"]["inputs"].values() for size in tensor["shape"]
    ]
    assert all(isinstance(size, int) for size in fixed)


def test_protocol_constants_are_the_networks(bundle):
    compact = json.loads((bundle("compact") / "bundle.json").read_text())
    official = json.loads((bundle("official") / "bundle.json").read_text())
    assert compact["protocol"] == {
        "temporal_rows": 7,
        "max_maps": 7,
        "max_pointers": 16,
        "pointer_tokens": 2,
        "recent_maps": 3,
        "memory_dtype": "float32",
        "default_view": "window",
        "window_factor": 5.0,
        "key_layout": "plain",
    }
    assert official["protocol"]["memory_dtype"] == "bfloat16"
    assert official["protocol"]["pointer_tokens"] == 4
    assert official["protocol"]["default_view"] == "auto"
    assert official["image"]["mean"] == [0.485, 0.456, 0.406]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_file_is_listed_with_its_size_and_hash(bundle, family):
    folder = bundle(family)
    files = json.loads((folder / "bundle.json").read_text())["files"]
    assert set(files) == {path.name for path in folder.iterdir()} - {"bundle.json"}
    for name, entry in files.items():
        content = (folder / name).read_bytes()
        assert entry == {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}


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
