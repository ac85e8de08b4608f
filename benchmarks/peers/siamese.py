"""Functions for the Siamese peers: cutting the networks' inputs out of an image, and choosing a cell.

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
"""Smallest width and height of a box that a cell predicts, px of the search region."""

Array = NDArray[np.float64]
Region = tuple[int, int, int, int]
"""Left, top, width and height in whole image px."""


def mean_colour(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the rounded mean of each channel, uint8 [3]. A crop has this colour outside the image."""
    return np.rint(image.mean(axis=(0, 1))).astype(np.uint8)


def crop(
    image: NDArray[np.uint8],
    region: Region,
    outside: NDArray[np.uint8],
    side: int,
) -> NDArray[np.float32]:
    """Return a part of an image, resized bilinearly to a square.

    Args:
        image: uint8 [H, W, 3].
        region: The part; it may lie outside the image, partly or wholly.
        outside: Colour of pixels outside the image, uint8 [3].
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
    """Parameters for the choice of a cell.

    ``penalty``: strength of the penalty on a change of size or aspect ratio. ``window``: weight of the cosine
    window, 0..1. ``rate``: share of the new size in the smoothed size, at score 1 and without penalty.
    """

    penalty: float
    window: float
    rate: float


@dataclass(frozen=True)
class Distances:
    """A head's output for each cell of its n x n map, float64 [n, n] each.

    ``score``: 0..1. ``left``, ``top``, ``right``, ``bottom``: distances from the cell's point to the edges of
    the box, px of the search region.
    """

    score: Array
    left: Array
    top: Array
    right: Array
    bottom: Array


@dataclass(frozen=True)
class Choice:
    """The chosen box, px of the search region: offset of its centre from the region's, and smoothed size."""

    dx: float
    dy: float
    width: float
    height: float


def context_side(width: float | Array, height: float | Array) -> Array:
    """Return the side of the square with the box and its context: sqrt((w + p)(h + p)), p = (w + h) / 2."""
    margin = (width + height) / 2
    return np.asarray(np.sqrt((width + margin) * (height + margin)), np.float64)


def choose(cells: Distances, stride: float, previous: tuple[float, float], tuning: Tuning) -> Choice:
    """Choose the cell with the best penalised score, and smooth the size of its box over time.

    ``stride``: distance of neighbouring cells' points, px of the search region. The point of cell (row,
    column) of an n x n map is at ((column, row) - n // 2) * stride from the region's centre. ``previous``:
    width and height of the previous box, px of the region. A box of another size or aspect ratio is
    penalised, and the size is smoothed from ``previous``; the position is not smoothed.
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
    """Return each ratio or its inverse, whichever is at least 1."""
    return np.maximum(value, 1 / value)
