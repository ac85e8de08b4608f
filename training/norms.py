"""Batch norms for training a trunk from nothing; networks here run with them merged into the convolutions."""

from __future__ import annotations

import copy

from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval


class NormedConv(nn.Sequential):
    """A convolution and its batch norm."""


def add_norms(module: nn.Module) -> None:
    """Put a batch norm behind every convolution inside ``module``, in place."""
    for name, child in module.named_children():
        if isinstance(child, nn.Conv2d):
            # The convolution keeps its bias, though the norm makes it idle: its weights keep their shape.
            setattr(module, name, NormedConv(child, nn.BatchNorm2d(child.out_channels)))
        else:
            add_norms(child)


def merge_norms(module: nn.Module) -> None:
    """Undo `add_norms` in place: each convolution takes over what its norm does in evaluation."""
    for name, child in module.named_children():
        if isinstance(child, NormedConv):
            conv, norm = child
            setattr(module, name, fuse_conv_bn_eval(copy.deepcopy(conv).eval(), norm.eval()))
        else:
            merge_norms(child)
