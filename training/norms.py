"""Batch norms for training a trunk from random weights; the networks here have them merged into the
convolutions."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval


class NormedConv(nn.Module):
    """A convolution and its batch norm."""

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        # The bias has no effect before a norm; it is kept for the merged convolution.
        self.conv, self.norm = conv, nn.BatchNorm2d(conv.out_channels)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm(self.conv(x))
        return out

    def merged(self) -> nn.Conv2d:
        """One convolution equivalent to both in evaluation mode."""
        return fuse_conv_bn_eval(self.conv.eval(), self.norm.eval())


def add_norms(module: nn.Module, names: Iterable[str] | None = None) -> None:
    """Add a batch norm after every convolution inside ``module``, or inside its parts of these names, in
    place."""
    for name, child in list(module.named_children()):
        if names is not None and name not in names:
            continue
        if isinstance(child, nn.Conv2d):
            setattr(module, name, NormedConv(child))
        else:
            add_norms(child)


def merge_norms(module: nn.Module) -> None:
    """Undo `add_norms` in place."""
    for name, child in list(module.named_children()):
        if isinstance(child, NormedConv):
            setattr(module, name, child.merged())
        else:
            merge_norms(child)
