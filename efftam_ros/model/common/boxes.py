"""Sub-pixel boxes and areas of mask logits, computed at mask resolution; traceable for export."""

from __future__ import annotations

import torch
from torch import Tensor

STRIDE = 4.0
"""Network px per mask pixel."""


def boxes_and_areas(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Logits [K,h,w] -> boxes [K,4] left, top, right, bottom in network px, and areas [K] in network px^2.

    Edges are the outermost zero crossings of the column and row maxima, linear between pixel centres; an edge
    of a mask that touches the border lies on the border. An empty mask gives zeros. NaN or infinite logits
    give a NaN area, so that a broken network is not mistaken for an empty mask.
    """
    left, right = _crossings(logits.amax(dim=1))
    top, bottom = _crossings(logits.amax(dim=2))
    boxes = torch.stack([left, top, right, bottom], dim=-1) * STRIDE
    pixels = (logits > 0).float() + logits.float() * 0.0
    return boxes, pixels.sum(dim=(1, 2)) * STRIDE**2


def _crossings(profile: Tensor) -> tuple[Tensor, Tensor]:
    """First and last zero crossing of each profile [K,n] in edge coordinates, zeros where nothing is
    positive."""
    # Padding with the negated border value puts the zero crossing exactly on the border.
    before = torch.cat([-profile[:, :1], profile[:, :-1]], dim=1)
    after = torch.cat([profile[:, 1:], -profile[:, -1:]], dim=1)
    centre = torch.arange(profile.shape[1], dtype=profile.dtype, device=profile.device) + 0.5
    inside = profile > 0
    rising = centre - profile / (profile - before)
    falling = centre + profile / (profile - after)
    first = torch.where(inside & (before <= 0), rising, float("inf")).amin(dim=1)
    last = torch.where(inside & (after <= 0), falling, 0.0).amax(dim=1)
    return torch.where(last > 0, first, 0.0), last
