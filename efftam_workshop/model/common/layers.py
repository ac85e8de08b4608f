"""Parts of the networks: layers, position encodings, and the boxes and areas of mask logits."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class LayerNorm2d(nn.LayerNorm):
    """LayerNorm over the channels of every pixel of [B,C,H,W].

    The exporter turns this layer into one LayerNormalization between two Transposes. TensorRT sums the
    squares of a LayerNormalization in FP32, whatever the graph's precision is.
    """

    def __init__(self, channels: int, eps: float = 1e-6) -> None:
        super().__init__(channels, eps=eps)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class MLP(nn.Module):
    """Linear layers ``widths[0] -> widths[1] -> ...`` with an activation between them and none at the end."""

    def __init__(self, widths: Sequence[int], activation: Callable[[Tensor], Tensor] = F.relu) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        *hidden, last = self.layers
        for layer in hidden:
            x = self.activation(layer(x))
        return last(x)


def dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, head_size: int, bias: Tensor | None = None
) -> Tensor:
    """Compute softmax(q k^T / sqrt(head_size) + bias) v for q, k, v of [B, heads, tokens, head_size].

    ``bias`` broadcasts to the logits. The query is scaled before the product, because unscaled logits would
    overflow in FP16. During export the two products and the softmax are separate operators, so that each gets
    its own precision. PyTorch's fused kernel is used only outside export, because the exporter would make
    it scale the keys too.
    """
    query = query * head_size**-0.5
    if not torch.onnx.is_in_onnx_export():
        return F.scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=1.0)
    logits = query @ key.transpose(-2, -1)
    if bias is not None:
        logits = logits + bias
    return logits.softmax(dim=-1) @ value


class MultiHeadAttention(nn.Module):
    """Multi-head attention [B,n,width] x [B,m,width] -> [B,n,width] with a separate inner width."""

    def __init__(self, width: int, heads: int, inner: int | None = None) -> None:
        super().__init__()
        inner = inner or width
        self.heads = heads
        self.head_size = inner // heads
        self.q_proj = nn.Linear(width, inner)
        self.k_proj = nn.Linear(width, inner)
        self.v_proj = nn.Linear(width, inner)
        self.out_proj = nn.Linear(inner, width)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        q, k, v = (
            self._split(self.q_proj(query)),
            self._split(self.k_proj(key)),
            self._split(self.v_proj(value)),
        )
        attended = dot_product_attention(q, k, v, self.head_size).transpose(1, 2)
        return self.out_proj(attended.reshape(1, -1, self.heads * self.head_size))

    def _split(self, x: Tensor) -> Tensor:
        return x.reshape(1, -1, self.heads, self.head_size).transpose(1, 2)


def sine_table(channels: int, grid: int) -> Tensor:
    """Return the position encoding [1, channels, grid, grid]: sines and cosines of row and column.

    The row takes the first half of the channels, the column the second half. Positions run from 1 to grid,
    scaled to 2 pi. Even channels are sines and odd ones cosines (DETR, Carion et al. 2020).
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


def sine_rows(channels: int, grid: int) -> Tensor:
    """Return `sine_table` with one row per token: [grid^2, channels]."""
    return sine_table(channels, grid).flatten(2)[0].T.contiguous()


def rotary_table(channels: int, grid: int) -> tuple[Tensor, Tensor]:
    """Return cosines and sines of axial rotary positions, each [grid^2, channels / 2].

    Token n lies at x = n mod grid, y = n div grid. The first half of the channel pairs rotates with x, the
    second half with y, both with the frequencies 10000^(-4 i / channels) (RoPE, Heo et al. 2024).
    """
    frequency = 1.0 / (10000.0 ** (torch.arange(0, channels, 4, dtype=torch.float32) / channels))
    place = torch.arange(grid, dtype=torch.float32)
    x, y = place.repeat(grid), place.repeat_interleave(grid)
    angle = torch.cat([torch.outer(x, frequency), torch.outer(y, frequency)], dim=-1)
    return angle.cos(), angle.sin()


def fourier_features(points: Tensor, gaussian: Tensor) -> Tensor:
    """Return random Fourier features [..., 2 k] of points [..., 2], which are (x, y) in [0, 1]^2.

    ``gaussian`` [2, k]: the frequencies (Tancik et al. 2020).
    """
    angle = (2 * points - 1) @ gaussian * (2 * math.pi)
    return torch.cat([angle.sin(), angle.cos()], dim=-1)


STRIDE = 4.0
"""Side of a mask pixel in network px."""


def boxes_and_areas(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Compute boxes [K,4] and areas [K] of the masks with the logits [K,n,n].

    Boxes are left, top, right, bottom in network px; areas are in network px^2. Edges are the outermost zero
    crossings of the column and row maxima, interpolated linearly between pixel centres. If a mask touches the
    image border, its edge lies on the border. An empty mask gives zeros. NaN or infinite logits give a NaN
    area, so that a broken network is not mistaken for an empty mask.
    """
    edges = _outermost(*_crossings(torch.cat([logits.amax(dim=1), logits.amax(dim=2)])))
    boxes = torch.cat(edges).reshape(4, -1).transpose(0, 1)
    pixels = torch.where(logits > 0, STRIDE**2, 0.0) + logits * 0.0
    return boxes, pixels.sum(dim=(1, 2))


def boxes_at_levels(columns: Tensor, rows: Tensor) -> Tensor:
    """Compute three boxes per mask, [K,3,4], from the maximum logits [K,n] of each column and row.

    Boxes are left, top, right, bottom in network px. The second box is that of `boxes_and_areas`. Each edge
    of the first box is the nearest place outside the second box where the maxima cross -1. Each edge of the
    third box is the nearest place inside the second box where the maxima cross 1, or half of the largest
    logit if this is less. An empty mask gives zeros.
    """
    maxima = torch.cat([columns, rows])
    inner_level = (maxima.amax(dim=1, keepdim=True) / 2).clamp(max=1.0)
    places, crosses = _crossings(torch.cat([maxima + 1.0, maxima, maxima - inner_level]))
    (outer, zero, inner), (is_outer, is_zero, is_inner) = places.chunk(3), crosses.chunk(3)
    first, last = _outermost(zero, is_zero)
    before, behind = first[:, None], last[:, None]
    edges = [
        torch.where(is_outer & (outer <= before), outer, -float("inf")).amax(dim=1),
        torch.where(is_outer & (outer >= behind), outer, float("inf")).amin(dim=1),
        first,
        last,
        torch.where(is_inner & (inner >= before), inner, float("inf")).amin(dim=1),
        torch.where(is_inner & (inner <= behind), inner, -float("inf")).amax(dim=1),
    ]
    boxes = torch.cat(edges).reshape(3, 4, -1).permute(2, 0, 1)
    return torch.where(columns.amax(dim=1)[:, None, None] > 0, boxes, 0.0)


def _outermost(places: Tensor, crosses: Tensor) -> tuple[Tensor, Tensor]:
    """Return the smallest and the largest of the ``places`` [k,n+1] where ``crosses`` is true: [k] each.

    Both are 0 if ``crosses`` is false everywhere.
    """
    first = torch.where(crosses, places, float("inf")).amin(dim=1)
    last = torch.where(crosses, places, 0.0).amax(dim=1)
    return torch.minimum(first, last), last


def _crossings(profile: Tensor) -> tuple[Tensor, Tensor]:
    """Find where each profile [k,n] crosses zero in the gaps between its pixels and at its two ends.

    The profile is linear between pixels. Returns for each of the n+1 gaps the place of the zero in network px
    and whether the profile crosses zero there: [k,n+1] each.
    """
    padded = F.pad(profile, (1, 1), value=-1.0)
    a, b = padded[:, :-1], padded[:, 1:]
    # The gap between two pixel centres is one pixel long. The gap between the border and the nearest pixel
    # centre has length 0 and lies on the border, so that a mask that touches the border gets its edge exactly
    # there.
    count = profile.shape[1]
    start = torch.arange(-1, count, dtype=profile.dtype, device=profile.device) + 0.5
    start, length = start.clamp(min=0.0), torch.ones_like(start)
    start[-1], length[0], length[-1] = count, 0.0, 0.0
    place = start * STRIDE + length * STRIDE * (a / (a - b))
    return place, (a > 0) ^ (b > 0)
