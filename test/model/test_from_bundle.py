"""A bundle's network comes back from its graphs as it went in."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the network needs torch: scripts/setup_env --with-tests")
pytest.importorskip("onnx", reason="bundles need onnx: scripts/setup_env --with-tests")

import json
import shutil
from pathlib import Path

import torch

from benchmarks.pytorch.torch_pipeline import TorchPipeline
from efftam_ros.core.errors import InputError
from efftam_ros.export.onnx.bundle import export_bundle
from efftam_ros.export.onnx.weights import prepare
from efftam_ros.model.common.from_bundle import UNUSED, load_bundle_network
from efftam_ros.model.common.network import Network
from efftam_ros.model.compact.network import COMPACT_CONFIGS, CompactTAM
from efftam_ros.model.efficienttam.configurations import CONFIGURATIONS, Configuration
from efftam_ros.model.efficienttam.network import EfficientTAM
from efftam_ros.runtime.bundle import Bundle

SMALL = Configuration("efficienttam_small", 64, 192, 3)


@pytest.fixture(scope="module")
def small_bundle(tmp_path_factory, golden_state) -> tuple[Network, Path]:
    """An EfficientTAM of 64 px with the golden weights, and its bundle."""
    network = EfficientTAM(SMALL).eval()
    network.load_state_dict(golden_state("ti"))
    folder = tmp_path_factory.mktemp("bundles") / "small"
    export_bundle(network, folder)
    return network, folder


@pytest.fixture(autouse=True)
def _small_is_known(monkeypatch):
    monkeypatch.setitem(CONFIGURATIONS, SMALL.name, SMALL)


def assert_same(rebuilt: Network, original: Network) -> None:
    for kind in ("named_parameters", "named_buffers"):
        expected = dict(getattr(original, kind)())
        for name, value in getattr(rebuilt, kind)():
            if name not in UNUSED and name != "image_encoder.trunk.pos_embed":
                assert torch.equal(value, expected[name]), name


def test_efficienttam_comes_back_bit_for_bit(small_bundle):
    network, folder = small_bundle
    assert_same(load_bundle_network(folder), network)


def test_the_pipeline_opens_a_bundle(small_bundle):
    network, folder = small_bundle
    pipeline = TorchPipeline.from_bundle(Bundle.load(folder), threads=1)
    assert pipeline.spec == TorchPipeline(network).spec
    assert pipeline.spec == Bundle.load(folder).spec


def test_half_precision_weights_come_back_as_the_graphs_use_them(tmp_path):
    torch.manual_seed(7)
    network = CompactTAM(COMPACT_CONFIGS["compact_192"]).eval()
    export_bundle(network, tmp_path / "compact", weights="float16")
    assert_same(load_bundle_network(tmp_path / "compact"), prepare(network, "float16"))


def damaged(small_bundle, tmp_path, change) -> Path:
    """A copy of the bundle with a changed manifest."""
    folder = shutil.copytree(small_bundle[1], tmp_path / "damaged")
    manifest = json.loads((folder / "bundle.json").read_text())
    change(manifest)
    (folder / "bundle.json").write_text(json.dumps(manifest))
    return folder


def test_a_network_unknown_here_is_refused(small_bundle, tmp_path):
    folder = damaged(small_bundle, tmp_path, lambda manifest: manifest.update(family="another"))
    with pytest.raises(InputError, match=r"family 'another' .* known are efficienttam_ti, .*compact_192"):
        load_bundle_network(folder)


def test_a_bundle_without_a_weight_is_refused(small_bundle, tmp_path):
    folder = damaged(small_bundle, tmp_path, lambda manifest: manifest["graphs"].pop("mask_decoder"))
    with pytest.raises(InputError, match="has no weight"):
        load_bundle_network(folder)


def test_a_bundle_of_another_configuration_is_refused(small_bundle, tmp_path):
    folder = damaged(small_bundle, tmp_path, lambda manifest: manifest.update(name="efficienttam_s_512x512"))
    with pytest.raises(InputError, match="has the shape"):
        load_bundle_network(folder)
