"""Windows that follow the model's own boxes inside a larger image, so that its errors feed back as in
tracking.

A clip's images show more than the network sees, around the predicted target position. The window in the next
image is centred on the box of the model's mask in the previous one and sized by it, so a mask that grows or
shrinks changes the window as well.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

MARGIN = 1.5  # side of the images, in network sides
GROWS, SHRINKS = 1.1, 0.97  # largest change of a window's side per frame
FOLLOW = 0.5  # exponent applied to a change of the box's size
NARROWEST = 0.5  # network sides


class ClosedWindows:
    """The windows of a batch: centres [B,2] and sides [B], in px of images of ``outer`` px."""

    def __init__(self, batch: int, outer: int, side: int, device: torch.device) -> None:
        self._outer, self._side = outer, side
        self.centre = torch.full((batch, 2), outer / 2, device=device)
        self.extent = torch.full((batch,), float(side), device=device)
        self._first_size: Tensor | None = None

    def cut(self, pictures: Tensor, side: int, mode: str = "bilinear") -> Tensor:
        """Crop the windows from whole images [B,c,h,h] of any resolution to [B,c,side,side]; 0 outside the
        image."""
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
        """Move the windows to the boxes of these masks [B,n,n]; where nothing is seen [B] or the mask is
        empty, stay."""
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
    """Side of the images for a network of this side: a multiple of 8, so that half its margin is a whole
    number of mask cells."""
    return 8 * math.ceil(MARGIN * side / 8)


def _ends(occupied: Tensor) -> tuple[Tensor, Tensor]:
    """First and one past the last true position along each row of [B,n], as floats."""
    count = occupied.shape[1]
    numbers = occupied.to(torch.int32)
    return numbers.argmax(1).float(), (count - numbers.flip(1).argmax(1)).float()
