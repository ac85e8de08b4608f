"""Batch norms merged into the convolutions before them, as inference wants them."""

from __future__ import annotations

from itertools import pairwise

from torch import nn


def fold_batch_norms(module: nn.Module) -> None:
    """Merge, in place, every batch norm that follows a convolution in a Sequential into that convolution.

    The module must be in evaluation mode.
    """
    for parent in list(module.modules()):
        if not isinstance(parent, nn.Sequential):
            continue
        for (conv_name, conv), (norm_name, norm) in pairwise(list(parent.named_children())):
            if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                setattr(parent, conv_name, nn.utils.fuse_conv_bn_eval(conv, norm))
                delattr(parent, norm_name)
