"""Position encodings of a grid, computed once in FP32."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def sine_table(channels: int, grid: int) -> Tensor:
    """Sine and cosine of the row (first half of the channels), then of the column: [1, channels, grid, grid].

    Positions run from 1 to grid, scaled to 2 pi; even channels are sines, odd ones cosines (DETR, Carion et
    al. 2020).
    """
    half = channels // 2
    position = torch.arange(1, grid + 1, dtype=torch.float32) / (grid + 1e-6) * (2 * math.pi)
    period = 10000.0 ** (2 * torch.div(torch.arange(half), 2, rounding_mode="floor") / half)
    angle = position[:, None] / period
    even = torch.arange(half) % 2 == 0
    line = torch.where(even, angle.sin(), angle.cos())
    rows = line[:, None, :].expand(grid, grid, half)
    columns = line[None, :, :].expand(grid, grid, half)
    return torch.cat([rows, columns], dim=-1).permute(2, 0, 1)[None].contiguous()


def rotary_table(channels: int, grid: int) -> tuple[Tensor, Tensor]:
    """Cosine and sine [grid^2, channels / 2] of axial rotary position (RoPE-Mixed's axial form, Heo et al.
    2024).

    Token n lies at x = n mod grid, y = n div grid. The first half of the channel pairs rotates with x, the
    second with y, both with the frequencies 10000^(-4 i / channels).
    """
    frequency = 1.0 / (10000.0 ** (torch.arange(0, channels, 4, dtype=torch.float32) / channels))
    place = torch.arange(grid, dtype=torch.float32)
    x, y = place.repeat(grid), place.repeat_interleave(grid)
    angle = torch.cat([torch.outer(x, frequency), torch.outer(y, frequency)], dim=-1)
    return angle.cos(), angle.sin()


def fourier_features(points: Tensor, gaussian: Tensor) -> Tensor:
    """Random Fourier features [..., 2 k] of points [..., 2] in [0, 1]^2 (x, y), with frequencies ``gaussian``
    [2, k] (Tancik et al. 2020)."""
    angle = (2 * points - 1) @ gaussian * (2 * math.pi)
    return torch.cat([angle.sin(), angle.cos()], dim=-1)
