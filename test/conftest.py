"""Shared by all tests: bundles that take long to export are exported once per session."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def golden_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """efficienttam_ti_512x512 with the artificial golden weights, as an exported bundle's folder."""
    torch = pytest.importorskip("torch", reason="export needs torch: scripts/setup_env --with-tests")
    pytest.importorskip("onnx", reason="export needs onnx: scripts/setup_env --with-tests")
    from golden.weights import weights

    from efftam_ros.export.onnx.bundle import export_bundle
    from efftam_ros.export.onnx.networks import build_network

    network = build_network("efficienttam_ti_512x512").eval()
    network.load_state_dict({name: torch.from_numpy(values) for name, values in weights("ti").items()})
    folder = tmp_path_factory.mktemp("golden") / "efficienttam_ti_512x512"
    export_bundle(network, folder)
    return folder
