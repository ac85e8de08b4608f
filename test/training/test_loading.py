"""A bundle's network comes back from its graphs as it went in."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the network needs torch: scripts/setup_env --with-tests")
pytest.importorskip("onnx", reason="bundles need onnx: scripts/setup_env --with-tests")

from pathlib import Path

import torch
from export_helpers import golden_state
from support.tensors import TensorRunner

from efftam_ros.core.errors import InputError
from efftam_ros.runtime.bundle import default_bundle
from efftam_workshop.export.onnx.bundle import export_bundle
from efftam_workshop.export.onnx.weights import prepare
from efftam_workshop.model.common.network import Network
from efftam_workshop.model.compact.network import CompactTAM
from efftam_workshop.model.efficienttam.configurations import CONFIGURATIONS, Configuration
from efftam_workshop.model.efficienttam.network import EfficientTAM
from efftam_workshop.model.loading import UNUSED, load_bundle_network

SMALL = Configuration("efficienttam_small", 64, 192, 3)


@pytest.fixture(scope="module")
def small_bundle(tmp_path_factory) -> tuple[Network, Path]:
    """An EfficientTAM of 64 px with the golden weights, and its bundle."""
    network = EfficientTAM(SMALL).eval()
    network.load_state_dict(golden_state())
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


def test_half_precision_weights_come_back_as_the_graphs_use_them(tmp_path):
    torch.manual_seed(7)
    network = CompactTAM().eval()
    export_bundle(network, tmp_path / "compact", weights="float16")
    assert_same(load_bundle_network(tmp_path / "compact"), prepare(network, "float16"))


def test_the_shipped_network_computes_in_pytorch_what_its_graphs_compute():
    folder = default_bundle().folder
    network = load_bundle_network(folder)
    assert isinstance(network, CompactTAM)
    image = torch.rand(1, 3, 192, 192, generator=torch.Generator().manual_seed(3)) * 2 - 1
    with torch.inference_mode():
        ours = network.encode_image(image)
    theirs = TensorRunner(folder / "image_encoder.onnx")({"image": image})
    for name in theirs:
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-3, atol=1e-3)


def test_a_network_unknown_here_is_refused(tmp_path):
    (tmp_path / "bundle.json").write_text('{"name": "another"}')
    with pytest.raises(InputError, match=r"'another'; choose one of efficienttam_ti, .*compact_192"):
        load_bundle_network(tmp_path)
