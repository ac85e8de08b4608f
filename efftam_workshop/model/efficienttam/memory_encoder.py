"""Memory encoder: makes a memory map, to which later frames attend, from a frame's features and mask."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efftam_workshop.model.common.layers import LayerNorm2d

MASK_CHANNELS = (1, 4, 16, 64, 256)
FUSER_BLOCKS = 2


class MemoryEncoder(nn.Module):
    """Encodes raw features [1,C,G,G] and a mask [1,1,S,S] with values -10..10 to a memory map [1,M,G,G]."""

    def __init__(self, channels: int = 256, memory_channels: int = 64) -> None:
        super().__init__()
        self.mask_downsampler = MaskDownsampler(channels)
        self.pix_feat_proj = nn.Conv2d(channels, channels, 1)
        self.fuser = Fuser(channels)
        self.out_proj = nn.Conv2d(channels, memory_channels, 1)

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        x = self.pix_feat_proj(features) + self.mask_downsampler(mask)
        return self.out_proj(self.fuser(x))


class MaskDownsampler(nn.Module):
    """Reduces a mask [1,1,S,S] to [1,C,G,G] by four strided convolutions and a projection."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(MASK_CHANNELS):
            layers += [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1), LayerNorm2d(outputs), nn.GELU()]
        layers.append(nn.Conv2d(MASK_CHANNELS[-1], channels, 1))
        self.encoder = nn.Sequential(*layers)

    def forward(self, mask: Tensor) -> Tensor:
        return self.encoder(mask)


class Fuser(nn.Module):
    """A sequence of ConvNeXt blocks."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(ConvNeXtBlock(channels) for _ in range(FUSER_BLOCKS))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class ConvNeXtBlock(nn.Module):
    """Depthwise 7x7, norm, two pointwise layers, scaled residual (Liu et al. 2022)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.dwconv = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.pwconv1 = nn.Linear(channels, 4 * channels)
        self.pwconv2 = nn.Linear(4 * channels, channels)
        self.gamma = nn.Parameter(torch.full((channels,), 1e-6))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.norm(self.dwconv(x).permute(0, 2, 3, 1))
        y = self.gamma * self.pwconv2(F.gelu(self.pwconv1(y)))
        return x + y.permute(0, 3, 1, 2)
