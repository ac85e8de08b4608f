"""Makes crops as a tracker's boxes give them: boxes and pixels changed at random, on any device."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

JITTER = 0.08  # standard deviation of a box's edges, as a share of its sides
COARSE_PX = (12, 16, 24, 32, 48, 64)  # px; sides to which some crops are reduced, like crops of small targets
CUT_SHARE, COVERED_SHARE, GREY_SHARE, COARSE_SHARE = 0.2, 0.25, 0.06, 0.5


def jittered(boxes: Tensor, random: torch.Generator) -> Tensor:
    """Return boxes [n,4] (left, top, right, bottom) with the errors of a tracker.

    They are moved, enlarged or reduced. Some are cut to 0.55 to 0.9 of one side, as at the image's border.
    """
    size = (boxes[:, 2:] - boxes[:, :2]).repeat(1, 2)
    out = boxes + JITTER * size * _normal(boxes, random)
    share = 0.1 + 0.35 * _uniform(len(boxes), boxes, random)
    side = torch.randint(4, (len(boxes),), generator=random, device=boxes.device)
    is_cut = (_uniform(len(boxes), boxes, random) < CUT_SHARE).float()
    sign = torch.tensor([1.0, 1.0, -1.0, -1.0], device=boxes.device)[side]
    amount = sign * share * is_cut * size.gather(1, side[:, None])[:, 0]
    return out.scatter_add(1, side[:, None], amount[:, None])


def parts(boxes: Tensor, random: torch.Generator) -> Tensor:
    """Return for each box a part of it: 0.25 to 0.5 of both sides, anywhere inside."""
    origin, size = boxes[:, :2], boxes[:, 2:] - boxes[:, :2]
    share = 0.25 + 0.25 * _uniform((len(boxes), 2), boxes, random)
    start = origin + (1 - share) * size * _uniform((len(boxes), 2), boxes, random)
    return torch.cat([start, start + share * size], 1)


def anywhere(count: int, like: Tensor, random: torch.Generator) -> Tensor:
    """Return random boxes [count,4] as shares of whole images.

    Their size is 0.04 to 0.6 of the image's, their aspect ratio up to 3 times the image's.
    """
    size = torch.exp(-3.2 + 2.7 * _uniform(count, like, random))
    ratio = torch.exp(1.1 * (_uniform(count, like, random) - 0.5))
    extent = torch.stack([(size * ratio).clamp(max=0.9), (size / ratio).clamp(max=0.9)], 1)
    start = (1 - extent) * _uniform((count, 2), like, random)
    return torch.cat([start, start + extent], 1)


def cropped(pixels: Tensor, boxes: Tensor, height: int, width: int) -> Tensor:
    """Cut boxes out of pictures and resize them to one size; return float32 [n,3,height,width], 0..255.

    ``pixels``: uint8 [n,h,w,3]. ``boxes``: [n,4], shares of the picture. Outside a picture its edge is
    repeated.
    """
    left, top, right, bottom = (boxes[:, i] for i in range(4))
    zero = torch.zeros_like(left)
    theta = torch.stack(
        [
            torch.stack([right - left, zero, left + right - 1], 1),
            torch.stack([zero, bottom - top, top + bottom - 1], 1),
        ],
        1,
    )
    grid = F.affine_grid(theta, [len(boxes), 3, height, width], align_corners=False)
    source = pixels.permute(0, 3, 1, 2).float()
    return F.grid_sample(source, grid, padding_mode="border", align_corners=False)


def changed(crops: Tensor, random: torch.Generator) -> Tensor:
    """Change light, colour and sharpness of crops [n,3,h,w], 0..255; cover some and mirror half of them."""
    n = len(crops)
    flip = _uniform(n, crops, random) < 0.5
    out = torch.where(flip[:, None, None, None], crops.flip(3), crops)
    out = _covered(out, random)
    gain = torch.exp(0.3 * _normal(out[:, :1, :1, :1], random))
    tint = torch.exp(0.07 * _normal(out[:, :, :1, :1], random))
    out = 255.0 * (out / 255.0).clamp(min=1e-4) ** torch.exp(0.2 * _normal(out[:, :1, :1, :1], random))
    out = out * gain * tint + 15.0 * _normal(out[:, :1, :1, :1], random)
    contrast = torch.exp(0.2 * _normal(out[:, :1, :1, :1], random))
    middle = out.mean((1, 2, 3), keepdim=True)
    out = middle + contrast * (out - middle)
    grey = (_uniform(n, crops, random) < GREY_SHARE)[:, None, None, None]
    out = torch.where(grey, out.mean(1, keepdim=True).expand_as(out), out)
    return _coarse(out, random).clamp(0.0, 255.0)


def _covered(crops: Tensor, random: torch.Generator) -> Tensor:
    """Cover some crops by a bar of one colour or of another crop, up to 0.4 of the area."""
    n, _, height, width = crops.shape
    rows = torch.linspace(0, 1, height, device=crops.device)[None, :, None]
    columns = torch.linspace(0, 1, width, device=crops.device)[None, None, :]
    is_upright = (_uniform(n, crops, random) < 0.5)[:, None, None]
    start = 1.2 * _uniform(n, crops, random)[:, None, None] - 0.2
    extent = (0.1 + 0.3 * _uniform(n, crops, random))[:, None, None]
    along = torch.where(is_upright, columns, rows)
    mask = (along >= start) & (along < start + extent)
    mask &= (_uniform(n, crops, random) < COVERED_SHARE)[:, None, None]
    other = crops[torch.randperm(n, generator=random, device=crops.device)]
    plain = other.mean((2, 3), keepdim=True).expand_as(other)
    is_plain = (_uniform(n, crops, random) < 0.5)[:, None, None, None]
    return torch.where(mask[:, None], torch.where(is_plain, plain, other), crops)


def _coarse(crops: Tensor, random: torch.Generator) -> Tensor:
    """Reduce some crops to few pixels and enlarge them again; then add noise to all."""
    size = crops.shape[2:]
    out = []
    for index, chunk in enumerate(crops.chunk(2 * len(COARSE_PX))):
        side = COARSE_PX[index // 2]
        if index % 2 < 2 * COARSE_SHARE - 0.5:
            small = F.interpolate(chunk, (side, side), mode="area")
            small = small + 4.0 * _normal(small, random)
            chunk = F.interpolate(small, size, mode="bilinear", align_corners=False)
        out.append(chunk)
    mixed = torch.cat(out)
    return mixed + 3.0 * _normal(mixed, random)


def _uniform(shape: int | tuple[int, ...], like: Tensor, random: torch.Generator) -> Tensor:
    return torch.rand(shape, generator=random, device=like.device)


def _normal(like: Tensor, random: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=random, device=like.device)
