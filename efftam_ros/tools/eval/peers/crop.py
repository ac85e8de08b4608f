"""Cuts the square network inputs of the peers out of an image."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

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
