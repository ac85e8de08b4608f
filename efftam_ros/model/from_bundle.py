"""Rebuilds the PyTorch network of a bundle from the weights inside its graphs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor

from efftam_ros.core.contract import InputRefused
from efftam_ros.model.batch_norm import fold_batch_norms
from efftam_ros.model.compact import COMPACT_CONFIGS, CompactTAM
from efftam_ros.model.configurations import CONFIGURATIONS, configuration
from efftam_ros.model.efficienttam import EfficientTAM
from efftam_ros.model.network import Network

NOT_IN_GRAPHS = frozenset({"no_mem_pos_enc", "image_encoder.trunk.pos_embed"})
"""Parameters that no graph holds: one is never used, of the other the graphs hold only the table made of it."""


def load_network(folder: str | Path) -> Network:
    """The network that the bundle in ``folder`` was exported from, in evaluation mode with FP32 weights.

    Weights and tables are the graphs' initialisers, which bear their PyTorch names. Raises InputRefused when the bundle's
    network is not known here or a weight is not in its graphs.
    """
    folder = Path(folder)
    manifest = json.loads((folder / "bundle.json").read_text(encoding="utf-8"))
    network = _untrained(manifest["family"], manifest["name"]).eval()
    stored = _initialisers(folder, [graph["file"] for graph in manifest["graphs"].values()])
    state = {name: stored[name] for name in network.state_dict() if name in stored}
    missing = sorted(network.state_dict().keys() - state.keys() - NOT_IN_GRAPHS)
    if missing:
        raise InputRefused(
            f"bundle {folder} lacks {len(missing)} weights of {manifest['name']}, first {missing[0]}; export it again"
        )
    network.load_state_dict(state, strict=False)
    for name, table in network.named_buffers():
        if name in stored:
            table.copy_(stored[name])
    return network


def _untrained(family: str, name: str) -> Network:
    if family == "efficienttam":
        return EfficientTAM(configuration(name))
    if family == "compact" and name in COMPACT_CONFIGS:
        network = CompactTAM(COMPACT_CONFIGS[name]).eval()
        fold_batch_norms(network)
        return network
    known = ", ".join([*CONFIGURATIONS, *COMPACT_CONFIGS])
    raise InputRefused(f"bundle of network {name!r} (family {family!r}) can't be rebuilt; known are {known}")


def _initialisers(folder: Path, files: list[str]) -> dict[str, Tensor]:
    """All initialisers of these graphs by name, half precision widened to FP32."""
    stored: dict[str, Tensor] = {}
    for file in files:
        graph = onnx.load(folder / file).graph
        for tensor in graph.initializer:
            value = numpy_helper.to_array(tensor, str(folder))
            wide = value.astype(np.float32) if value.dtype == np.float16 else value
            stored[tensor.name] = torch.from_numpy(wide.copy())
    return stored
