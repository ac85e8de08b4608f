"""Checkpoints of a training run: complete ones to resume from, and files of weights for export."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch

from efftam_ros.core.errors import InputError, shown
from efftam_workshop.model.compact.network import CompactTAM

RESUME, WEIGHTS = "resume.pt", "weights.pt"


def save(path: Path, content: dict[str, Any]) -> None:
    """Write ``content`` atomically, so that an interrupted run keeps the last complete checkpoint."""
    partial = path.with_suffix(".part")
    torch.save(content, partial)
    partial.replace(path)


def save_weights(path: Path, network: CompactTAM) -> None:
    """Save the network's weights in the format that ``efftam export`` reads."""
    save(path, {"model": {name: value.detach().cpu() for name, value in network.state_dict().items()}})


def load(path: Path) -> dict[str, Any]:
    """Load a checkpoint to resume from. Only tensors and numbers are unpickled; no code is executed.

    Raises InputError if the file is missing, damaged or not such a checkpoint.
    """
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise InputError(f"there is no checkpoint {path} to resume from; start without --resume") from None
    except (RuntimeError, OSError, EOFError, pickle.UnpicklingError) as error:
        raise InputError(
            f"checkpoint {path} can't be read ({shown(error)}); start again without --resume"
        ) from None
    if not isinstance(content, dict) or "optimizer" not in content:
        raise InputError(f"{path} is not a checkpoint to resume from; name a run's {RESUME}")
    return content
