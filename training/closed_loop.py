"""Windows that follow the model's own boxes inside a larger picture, so that its errors feed back in training
as they do in tracking.

A clip's pictures show more than the network sees, around where a prediction of the target would be. What is
cut from the next picture lies around the box that the model's mask had in the one before, and is as wide as
that box asks for: a mask that creeps or shrinks takes the window with it.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

MARGIN = 1.5  # side of the pictures in network sides
GROWS, SHRINKS = 1.1, 0.97  # most change of a window's side per frame
FOLLOW = 0.5  # of a change of the box's size, in its logarithm
NARROWEST = 0.5  # network sides


class ClosedWindows:
    """The windows of a batch: centres [B,2] and sides [B] in px of pictures of ``outer`` px."""

    def __init__(self, batch: int, outer: int, side: int, device: torch.device) -> None:
        self._outer, self._side = outer, side
        self.centre = torch.full((batch, 2), outer / 2, device=device)
        self.extent = torch.full((batch,), float(side), device=device)
        self._first_size: Tensor | None = None

    def cut(self, pictures: Tensor, side: int, mode: str = "bilinear") -> Tensor:
        """[B,c,h,h], of the whole picture at any resolution -> the windows, [B,c,side,side]; 0 outside."""
        scale = self.extent / self._outer
        shift = 2 * self.centre / self._outer - 1
        zero = torch.zeros_like(scale)
        matrix = torch.stack(
            [torch.stack([scale, zero, shift[:, 0]], 1), torch.stack([zero, scale, shift[:, 1]], 1)], 1
        )
        grid = F.affine_grid(matrix, [len(pictures), pictures.shape[1], side, side], align_corners=False)
        return F.grid_sample(pictures, grid, mode=mode, align_corners=False)

    @torch.no_grad()
    def follow(self, mask_logits: Tensor, seen: Tensor) -> None:
        """Move to the boxes of these masks [B,n,n]; where nothing is seen [B] or drawn, stay."""
        drawn = mask_logits > 0
        known = seen & drawn.flatten(1).any(1)
        cells = mask_logits.shape[-1]
        left, right = _ends(drawn.any(1))
        top, bottom = _ends(drawn.any(2))
        low, high = torch.stack([left, top], 1), torch.stack([right, bottom], 1)
        size = ((high - low).prod(1).clamp(min=1).sqrt() / cells) * self.extent
        if self._first_size is None:
            self._first_size = torch.where(known, size, self.extent / 5)
        middle = ((low + high) / (2 * cells) - 0.5) * self.extent.unsqueeze(1)
        self.centre = torch.where(known.unsqueeze(1), self.centre + middle, self.centre)
        wanted = self._side * (size / self._first_size) ** FOLLOW
        limited = torch.minimum(torch.maximum(wanted, self.extent * SHRINKS), self.extent * GROWS)
        limited = limited.clamp(NARROWEST * self._side, float(self._outer))
        self.extent = torch.where(known, limited, self.extent)


def outer_side(side: int) -> int:
    """Side of the pictures for a network of this side: a multiple of 8, so that its half margin is one of
    the mask's cells."""
    return 8 * math.ceil(MARGIN * side / 8)


def _ends(occupied: Tensor) -> tuple[Tensor, Tensor]:
    """First and one past the last true place along each row of [B,n], as floats."""
    count = occupied.shape[1]
    numbers = occupied.to(torch.int32)
    return numbers.argmax(1).float(), (count - numbers.flip(1).argmax(1)).float()
