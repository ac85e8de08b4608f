"""Makes a trained network ready to be exported: inference mode, batch norms folded, weights rounded."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Literal, get_args

import torch
from torch import nn

from efftam_ros.core.contract import InputRefused
from efftam_ros.model.network import Network

WeightType = Literal["float32", "float16"]


def prepare(network: Network, weights: WeightType = "float32") -> Network:
    """A copy of ``network`` as a bundle holds it: what the graphs are traced from and compared with."""
    if weights not in get_args(WeightType):
        raise InputRefused(
            f"weights {weights!r} can't be stored; choose one of {', '.join(get_args(WeightType))}"
        )
    prepared = copy.deepcopy(network).float().cpu().eval().requires_grad_(False)
    fold_batch_norms(prepared)
    _check_finite(prepared)
    if weights == "float16":
        for parameter in prepared.parameters():
            parameter.data = parameter.data.half().float()
        prepared.load_state_dict(prepared.state_dict())  # tables made of parameters follow
    return prepared


def fold_batch_norms(module: nn.Module) -> None:
    """Merge, in place, every batch norm that follows a convolution in a Sequential into that convolution."""
    for parent in list(module.modules()):
        if not isinstance(parent, nn.Sequential):
            continue
        names = list(parent._modules)
        for conv_name, norm_name in pairwise(names):
            conv, norm = parent._modules[conv_name], parent._modules[norm_name]
            if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                parent._modules[conv_name] = torch.nn.utils.fuse_conv_bn_eval(conv, norm)
                del parent._modules[norm_name]


def _check_finite(network: Network) -> None:
    for name, value in network.state_dict().items():
        if not torch.isfinite(value).all():
            raise InputRefused(
                f"weight {name} holds NaN or infinity; the checkpoint is damaged, get it again"
            )
