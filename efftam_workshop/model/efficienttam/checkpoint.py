"""Loads official checkpoints ``{"model": state_dict}`` into the configuration given by the caller."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from efftam_ros.core.errors import InputError
from efftam_workshop.model.efficienttam.configurations import CONFIGURATIONS, configuration
from efftam_workshop.model.efficienttam.network import EfficientTAM

WIDTH_TENSOR = "image_encoder.trunk.patch_embed.proj.bias"
"""Its length is the width of the trunk, which differs between ti and s."""


def load_checkpoint(path: str | Path, name: str) -> EfficientTAM:
    """Load an official checkpoint into configuration ``name``, on the CPU in evaluation mode.

    A checkpoint does not contain its image side or pooling, so the caller must give the name (official files
    are named after their configuration). Raises InputError when the file is not a checkpoint or does not fit
    the configuration.
    """
    network = EfficientTAM(configuration(name)).eval()
    state = read_state_dict(path)
    _check_width(path, name, state)
    _check_tensors(path, name, state, network.state_dict())
    network.load_state_dict(state, strict=True)
    return network


def read_state_dict(path: str | Path) -> dict[str, Tensor]:
    """Read the tensors of a checkpoint file; unpickles tensors and plain containers only, never code."""
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
        raise InputError(
            f"{path} holds {_describe(content)}, not {{'model': state_dict}}; use an official checkpoint"
        )
    return dict(state)


def _describe(content: object) -> str:
    if isinstance(content, Mapping):
        return f"a dictionary with the keys {_shortened([repr(key) for key in content])}"
    return f"an object of type {type(content).__name__}"


def _check_width(path: str | Path, name: str, state: Mapping[str, Tensor]) -> None:
    tensor = state.get(WIDTH_TENSOR)
    expected = configuration(name).width
    if tensor is None or tensor.ndim != 1 or tensor.numel() == expected:
        return
    width = tensor.numel()
    fitting = [c.name for c in CONFIGURATIONS.values() if c.width == width]
    remedy = f"use one of {', '.join(fitting)}" if fitting else "use an official checkpoint"
    raise InputError(f"{path} has a trunk of width {width}, but {name} has {expected}; {remedy}")


def _check_tensors(
    path: str | Path, name: str, state: Mapping[str, Tensor], expected: Mapping[str, Tensor]
) -> None:
    missing = [key for key in expected if key not in state]
    unexpected = [key for key in state if key not in expected]
    misshapen = [
        f"{key} {list(state[key].shape)} instead of {list(tensor.shape)}"
        for key, tensor in expected.items()
        if key in state and state[key].shape != tensor.shape
    ]
    broken = [key for key in expected if key in state and not torch.isfinite(state[key]).all()]
    faults = [
        f"{len(items)} {what} ({_shortened(items)})"
        for what, items in (
            ("tensors missing", missing),
            ("unexpected tensors", unexpected),
            ("of another shape", misshapen),
            ("not finite", broken),
        )
        if items
    ]
    if faults:
        raise InputError(f"{path} does not fit {name}: {'; '.join(faults)}; use the official {name}.pt")


def _shortened(items: Sequence[str], most: int = 3) -> str:
    return ", ".join(items[:most]) + (", ..." if len(items) > most else "")
