"""Checkpoints of a training run: complete ones to resume from, and weights alone to export."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch

from efftam_ros.core.contract import InputRefused
from efftam_ros.model.compact import CompactTAM

RESUME, WEIGHTS = "resume.pt", "weights.pt"


def save(path: Path, content: dict[str, Any]) -> None:
    """Write under another name first: an interrupted run leaves the last whole checkpoint."""
    partial = path.with_suffix(".part")
    torch.save(content, partial)
    partial.replace(path)


def save_weights(path: Path, network: CompactTAM) -> None:
    """Weights as ``efftam export`` takes them."""
    save(path, {"model": {name: value.detach().cpu() for name, value in network.state_dict().items()}})


def load(path: Path) -> dict[str, Any]:
    """A checkpoint to resume from. Raises InputRefused when there is none or it is damaged."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise InputRefused(f"there is no checkpoint {path} to resume from; start without --resume") from None
    except (RuntimeError, OSError, EOFError, pickle.UnpicklingError) as error:
        reason = str(error).partition("\n")[0]
        raise InputRefused(
            f"checkpoint {path} can't be read ({reason}); start again without --resume"
        ) from None
    if not isinstance(content, dict) or "optimizer" not in content:
        raise InputRefused(f"{path} is no checkpoint to resume from; name a run's {RESUME}")
    return content
