"""The way back: from a bundle's graphs to the PyTorch network they were traced from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import numpy_helper

from efftam_ros.core.contract import InputRefused
from efftam_ros.export.networks import build_network
from efftam_ros.export.prepare import fold_batch_norms
from efftam_ros.export.trace import NAMELESS
from efftam_ros.model.network import Network


def rebuild_network(folder: Path, name: str) -> Network:
    """The network of configuration ``name`` as the bundle in ``folder`` holds it: float32, inference only.

    Weights and tables are taken from the graphs by name. Parameters that no graph uses keep fresh values:
    those behind a table (the table itself is there), and those that nothing uses. Raises InputRefused when a
    weight does not fit.
    """
    network = build_network(name).requires_grad_(False)
    fold_batch_norms(network)
    stored = bundle_weights(folder)
    state = network.state_dict()
    network.load_state_dict({key: _fitting(folder, key, stored, value) for key, value in state.items()})
    for key, table in network.named_buffers():
        table.copy_(_fitting(folder, key, stored, table))
    return network


def bundle_weights(folder: Path) -> dict[str, NDArray[Any]]:
    """Every initialiser of the graphs in ``folder`` by name, as it is stored (float32 or float16)."""
    weights: dict[str, NDArray[Any]] = {}
    for path in sorted(folder.glob("*.onnx")):
        base = str(folder)
        for tensor in onnx.load(path, load_external_data=False).graph.initializer:
            if not tensor.name.startswith(NAMELESS):
                weights[tensor.name] = numpy_helper.to_array(tensor, base)
    return weights


def _fitting(folder: Path, key: str, stored: dict[str, NDArray[Any]], like: torch.Tensor) -> torch.Tensor:
    if key not in stored:
        return like
    value = torch.from_numpy(np.array(stored[key])).to(like.dtype)
    if value.numel() != like.numel():
        raise InputRefused(
            f"{folder}: weight {key} has shape {list(value.shape)}, the network has {list(like.shape)}; "
            "the bundle is of another configuration"
        )
    return value.reshape(like.shape)
