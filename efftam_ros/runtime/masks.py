"""Computes boxes and image masks from the decoder's mask logits."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.geometry import View

# Network px per pixel of the decoder's logits.
CELL = 4


def boxes_and_areas(logits: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Boxes [K, 4] (left, top, right, bottom, network px) and areas [K] (network px^2) of logits [K, L, L].

    Same result as the decoder graph: an edge lies where the maximum over rows or columns crosses zero,
    linearly interpolated between pixel centres, and on the border where the mask touches it. An empty mask
    gives zeros.
    """
    boxes = np.zeros((len(logits), 4), np.float32)
    for box, map_ in zip(boxes, logits, strict=True):
        if (map_ > 0).any():
            box[0], box[2] = _crossings(map_.max(axis=0))
            box[1], box[3] = _crossings(map_.max(axis=1))
    areas = (logits > 0).sum(axis=(1, 2), dtype=np.float32) * CELL**2
    return boxes * CELL, areas


def _crossings(profile: NDArray[np.float32]) -> tuple[float, float]:
    """Where a profile first and last crosses zero, in its pixels' edge coordinates."""
    inside = np.flatnonzero(profile > 0)
    first, last = int(inside[0]), int(inside[-1])
    low, high = 0.0, float(len(profile))
    # Linear between the last pixel outside and the first one inside: edges finer than a cell.
    if first > 0:
        low = first + 0.5 - profile[first] / (profile[first] - profile[first - 1])
    if last + 1 < len(profile):
        high = last + 0.5 + profile[last] / (profile[last] - profile[last + 1])
    return low, high


def image_mask(logits: NDArray[np.float32], view: View, width: int, height: int) -> NDArray[np.uint8]:
    """Resample the logits [L, L] of a view to a mask uint8 [height, width], 255 where the bilinear logit is
    above 0.

    Pixels whose centre lies outside the view are 0.
    """
    if view.is_full(width, height):
        scaled = cv2.resize(logits, (width, height), interpolation=cv2.INTER_LINEAR)
        return _positive(scaled)
    # Only the pixels of the window are computed: a window is a small part of a large image.
    mask = np.zeros((height, width), np.uint8)
    extent_x, extent_y = view.extent
    x0, x1 = centres_within(view.x, view.x + extent_x, width)
    y0, y1 = centres_within(view.y, view.y + extent_y, height)
    if x0 < x1 and y0 < y1:
        cells_x, cells_y = view.scale_x / CELL, view.scale_y / CELL
        matrix = np.array(
            [
                [cells_x, 0.0, (x0 + 0.5 - view.x) * cells_x - 0.5],
                [0.0, cells_y, (y0 + 0.5 - view.y) * cells_y - 0.5],
            ]
        )
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        size = (x1 - x0, y1 - y0)
        scaled = cv2.warpAffine(logits, matrix, size, flags=flags, borderMode=cv2.BORDER_REPLICATE)
        mask[y0:y1, x0:x1] = _positive(scaled)
    return mask


def _positive(values: NDArray[Any]) -> NDArray[np.uint8]:
    """255 where a value is above 0, else (also for NaN) 0."""
    return (values > 0).view(np.uint8) * np.uint8(255)


def centres_within(low: float, high: float, size: int) -> tuple[int, int]:
    """Range [first, end) of the pixels in a line of ``size`` whose centres lie in the interval [low,
    high)."""
    return max(0, int(np.ceil(low - 0.5))), min(size, int(np.ceil(high - 0.5)))
