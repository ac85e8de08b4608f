"""Loads PyTorch networks from a checkpoint or from the graphs of a bundle."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor

from efftam_ros.core.errors import InputError, shown
from efftam_ros.core.types import BoxHead
from efftam_workshop.model.common.network import Network
from efftam_workshop.model.compact.network import SPEC, CompactTAM
from efftam_workshop.model.efficienttam.configurations import CONFIGURATIONS
from efftam_workshop.model.efficienttam.network import EfficientTAM

UNUSED = frozenset({"no_mem_pos_enc"})
"""Parameters that checkpoints contain but the network does not use."""

TABLE_INSTEAD = {"image_encoder.trunk.pos_embed": "image_encoder.trunk.position"}
"""For each of these parameters the graphs contain only the table that is derived from it."""


def untrained(name: str) -> Network:
    """Return the network called ``name`` in evaluation mode.

    Raises InputError, listing all names, if there is no such network.
    """
    if name == SPEC.name:
        return CompactTAM().eval()
    if name not in CONFIGURATIONS:
        raise InputError(
            f"there is no network {name!r}; choose one of {', '.join([*CONFIGURATIONS, SPEC.name])}"
        )
    return EfficientTAM(CONFIGURATIONS[name]).eval()


def load_bundle_network(folder: str | Path) -> Network:
    """Rebuild the network from which the bundle in ``folder`` was exported, in evaluation mode.

    The weights are the graphs' initialisers, in FP32, which have the names of PyTorch. Batch norms stay
    merged as in the export. Raises InputError if the network is unknown or the weights in the graphs do not
    fit it.
    """
    folder = Path(folder)
    manifest = json.loads((folder / "bundle.json").read_text(encoding="utf-8"))
    network = untrained(manifest["name"])
    if "box_head" in manifest:
        network.spec = replace(network.spec, box_head=BoxHead(**manifest["box_head"]))
    stored = initialisers(folder / graph["file"] for graph in manifest["graphs"].values())
    state = network.state_dict()
    for name in state.keys() - UNUSED - TABLE_INSTEAD.keys():
        state[name] = _fitting(stored, name, state[name], folder)
    network.load_state_dict(state)
    tables = dict(network.named_buffers())
    for table in (table for name, table in TABLE_INSTEAD.items() if name in state):
        tables[table].copy_(_fitting(stored, table, tables[table], folder))
    return network


def load_checkpoint(path: str | Path, name: str) -> Network:
    """Return the network called ``name`` with the weights of a checkpoint, on the CPU in evaluation mode.

    The checkpoint is a file ``{"model": state_dict}``, official or from training. It does not contain the
    image side or the pooling, so the caller must give the name; official files are named after their
    configuration. Raises InputError if the file is not a checkpoint or does not fit the network.
    """
    network = untrained(name)
    try:
        network.load_state_dict(read_state_dict(path))
    except RuntimeError as error:
        faults = "; ".join(line.strip() for line in str(error).splitlines()[1:])
        raise InputError(f"{path} does not fit {name}: {faults[:300]}; use the file of {name}") from None
    return network


def read_state_dict(path: str | Path) -> dict[str, Tensor]:
    """Read the tensors of a checkpoint file, by name.

    Only tensors and containers are unpickled, so that no code of the file runs. Raises InputError if the file
    can't be read or is not a checkpoint.
    """
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise InputError(f"there is no checkpoint {path}; check the path or run efftam fetch") from None
    except pickle.UnpicklingError:
        raise InputError(
            f"{path} is not a PyTorch checkpoint of tensors only; use an official checkpoint"
        ) from None
    except (OSError, RuntimeError, EOFError, ValueError, KeyError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"{path} can't be read as a PyTorch checkpoint ({reason}); download it again"
        ) from None
    state = content.get("model") if isinstance(content, Mapping) else None
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        keys = ", ".join(map(repr, content)) if isinstance(content, Mapping) else type(content).__name__
        found = shown(keys)
        raise InputError(f"{path} holds {found}, not {{'model': state_dict}}; use an official checkpoint")
    return dict(state)


def initialisers(paths: Iterable[Path]) -> dict[str, Tensor]:
    """Return all initialisers of the graphs ``paths`` by name; float16 is converted to float32."""
    stored: dict[str, Tensor] = {}
    for path in paths:
        for tensor in onnx.load(path).graph.initializer:
            value = numpy_helper.to_array(tensor)
            wide = value.astype(np.float32) if value.dtype == np.float16 else value.copy()
            stored[tensor.name] = torch.from_numpy(wide)
    return stored


def _fitting(stored: dict[str, Tensor], name: str, like: Tensor, folder: Path) -> Tensor:
    value = stored.get(name)
    if value is None:
        raise InputError(f"bundle {folder} has no weight {name}; export the bundle again")
    if value.numel() != like.numel():
        raise InputError(
            f"bundle {folder}: weight {name} has the shape {list(value.shape)}, not {list(like.shape)};"
            " export the bundle again"
        )
    return value.reshape(like.shape)
