"""Makes a trained network ready to be exported: inference mode, weights checked and rounded."""

from __future__ import annotations

import copy
from typing import Literal, get_args

import torch

from efftam_ros.core.errors import InputError
from efftam_ros.model.common.network import Network

WeightType = Literal["float32", "float16"]

FLOAT16_MAX = 65504.0


def prepare(network: Network, weights: WeightType = "float32") -> Network:
    """A copy of ``network`` as a bundle holds it: what the graphs are traced from and compared with.

    Raises InputError when a weight is not finite or, for float16, out of range.
    """
    if weights not in get_args(WeightType):
        raise InputError(
            f"weights {weights!r} can't be stored; choose one of {', '.join(get_args(WeightType))}"
        )
    prepared = copy.deepcopy(network).float().cpu().eval().requires_grad_(False)
    _check_finite(prepared)
    if weights == "float16":
        _round_to_float16(prepared)
    return prepared


def _check_finite(network: Network) -> None:
    for name, value in network.state_dict().items():
        if not torch.isfinite(value).all():
            raise InputError(f"weight {name} holds NaN or infinity; get the checkpoint again")


def _round_to_float16(network: Network) -> None:
    for name, parameter in network.named_parameters():
        peak = float(parameter.abs().max())
        if peak > FLOAT16_MAX:
            raise InputError(f"weight {name} reaches {peak:g}, float16 ends at {FLOAT16_MAX:g}; use float32")
        parameter.data = parameter.data.half().float()
    network.load_state_dict(network.state_dict())  # tables made of parameters follow
