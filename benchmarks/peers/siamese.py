"""What the Siamese peers share: inputs cut out of an image, and the choice among the head's cells.

Source: Li, Yan, Wu, Zhu and Hu, "High Performance Visual Tracking with Siamese Region Proposal Network", CVPR
2018, section 4.3: cosine window, penalty on changes of size and aspect ratio, linear interpolation of the
size. The context around the target, half of width plus height, is that of Bertinetto et al.,
"Fully-Convolutional Siamese Networks for Object Tracking", ECCV 2016 workshops.
"""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

MIN_SIDE_PX = 1e-3
"""Least width and height of a box that a cell predicts, in px of the search region."""

Array = NDArray[np.float64]
Region = tuple[int, int, int, int]
"""Left, top, width and height in whole image px."""


def mean_colour(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Mean of each channel, rounded: what a crop shows outside the image."""
    return np.rint(image.mean(axis=(0, 1))).astype(np.uint8)


def crop(
    image: NDArray[np.uint8],
    region: Region,
    outside: NDArray[np.uint8],
    side: int,
) -> NDArray[np.float32]:
    """A part of an image, resized bilinearly to a square.

    Args:
        image: uint8 [H, W, 3].
        region: It may lie outside the image in part or wholly.
        outside: Colour where there is no image.
        side: Side of the result, px.

    Returns:
        float32 [1, 3, side, side], 0..255.
    """
    left, top, width, height = region
    rows = slice(max(0, top), max(0, min(image.shape[0], top + height)))
    columns = slice(max(0, left), max(0, min(image.shape[1], left + width)))
    part = image[rows, columns]
    if part.shape[:2] != (height, width):
        padded = np.empty((height, width, 3), np.uint8)
        padded[:] = outside
        if part.size:
            padded[rows.start - top : rows.stop - top, columns.start - left : columns.stop - left] = part
        part = padded
    resized = cv2.resize(part, (side, side), interpolation=cv2.INTER_LINEAR)
    return np.ascontiguousarray(resized.transpose(2, 0, 1)[None], dtype=np.float32)


@dataclass(frozen=True)
class Tuning:
    """How boldly a tracker follows.

    ``penalty``: strength of the penalty on change; ``window``: weight of the cosine window, 0..1; ``rate``:
    share of the new size at score 1 without penalty.
    """

    penalty: float
    window: float
    rate: float


@dataclass(frozen=True)
class Distances:
    """What a head says for each cell of its n x n map: ``score`` 0..1, and the distances in px of the search
    region from the cell's point to the box's edges; float64 [n, n] each."""

    score: Array
    left: Array
    top: Array
    right: Array
    bottom: Array


@dataclass(frozen=True)
class Choice:
    """The chosen box in px of the search region, from its centre, with its size already smoothed."""

    dx: float
    dy: float
    width: float
    height: float


def context_side(width: float | Array, height: float | Array) -> Array:
    """Side of the square with the box's context: sqrt((w + p)(h + p)) with p = (w + h) / 2."""
    margin = (width + height) / 2
    return np.asarray(np.sqrt((width + margin) * (height + margin)), np.float64)


def choose(cells: Distances, stride: float, previous: tuple[float, float], tuning: Tuning) -> Choice:
    """Choose the cell with the best penalised score, and smooth its size.

    Cell (row, column) of an n x n map has its point at ((column, row) - n // 2) * stride from the region's
    centre. ``previous``: the previous width and height in px of the region, which the penalty compares with
    and from which the size moves on; the position is not smoothed.
    """
    count = len(cells.score)
    width = np.maximum(cells.left + cells.right, MIN_SIDE_PX)
    height = np.maximum(cells.top + cells.bottom, MIN_SIDE_PX)
    size_change = _ratio(context_side(width, height) / context_side(*previous))
    aspect_change = _ratio((width / height) / (previous[0] / previous[1]))
    penalty = np.exp(-tuning.penalty * (size_change * aspect_change - 1))
    cosine = np.hanning(count)
    ranked = penalty * cells.score * (1 - tuning.window) + np.outer(cosine, cosine) * tuning.window
    row, column = divmod(int(ranked.argmax()), count)
    cell = row, column
    rate = float(penalty[cell] * cells.score[cell]) * tuning.rate
    return Choice(
        (column - count // 2) * stride + float(cells.right[cell] - cells.left[cell]) / 2,
        (row - count // 2) * stride + float(cells.bottom[cell] - cells.top[cell]) / 2,
        previous[0] + rate * (float(width[cell]) - previous[0]),
        previous[1] + rate * (float(height[cell]) - previous[1]),
    )


def _ratio(value: Array) -> Array:
    """The ratio or its inverse, whichever is at least 1."""
    return np.maximum(value, 1 / value)
