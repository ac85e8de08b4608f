"""Layers with soft edges, placed in a larger image by affine maps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Affine = NDArray[np.float64]  # [2, 3], between edge coordinates (see core.geometry)
Region = tuple[int, int, int, int]  # left, top, right, bottom px, half-open


@dataclass(frozen=True)
class Layer:
    """An image with soft edges.

    ``bgra``: uint8 [h, w, 4], colours multiplied by alpha; ``alpha``: uint8 [h, w], a contiguous copy for
    masks.
    """

    bgra: Bytes
    alpha: Bytes

    @classmethod
    def of(cls, bgr: Bytes, alpha: Bytes) -> Layer:
        """Create from straight colours uint8 [h, w, 3] and alpha uint8 [h, w]."""
        three = cv2.merge([alpha, alpha, alpha])
        return cls(
            np.ascontiguousarray(np.dstack([cv2.multiply(bgr, three, scale=1 / 255), alpha])), alpha.copy()
        )

    @property
    def size(self) -> tuple[int, int]:
        """Width and height, px."""
        return self.alpha.shape[1], self.alpha.shape[0]


def compose(outer: Affine, inner: Affine) -> Affine:
    """Map that applies ``inner`` first, then ``outer``."""
    return np.hstack([outer[:, :2] @ inner[:, :2], outer[:, :2] @ inner[:, 2:] + outer[:, 2:]])


def moved(place: Affine, points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Apply a map to points [n, 2]."""
    return points @ place[:, :2].T + place[:, 2]


def centred(layer: Layer, centre: NDArray[np.float64], angle: float) -> Affine:
    """Map that puts a layer's centre at ``centre``, rotated by ``angle`` rad, at one px per px."""
    c, s = math.cos(angle), math.sin(angle)
    turn = np.array([[c, -s], [s, c]])
    middle = np.array(layer.size) / 2
    return np.column_stack([turn, centre - turn @ middle])


def region_of(layer: Layer, place: Affine) -> Region:
    """The whole pixels that a placed layer may touch, not clipped to any image."""
    width, height = layer.size
    corners = moved(place, np.array([[0, 0], [width, 0], [0, height], [width, height]], float))
    low, high = np.floor(corners.min(axis=0)) - 1, np.ceil(corners.max(axis=0)) + 1
    return int(low[0]), int(low[1]), int(high[0]), int(high[1])


def inside(region: Region, width: int, height: int) -> Region:
    """The part of a region in an image; empty regions have no positive size."""
    x0, y0, x1, y1 = region
    return max(x0, 0), max(y0, 0), min(x1, width), min(y1, height)


def is_empty(region: Region) -> bool:
    return region[2] <= region[0] or region[3] <= region[1]


def opacity(layer: Layer, place: Affine, region: Region) -> Bytes:
    """Alpha of a placed layer in a region, uint8 [h, w]."""
    return _warped(layer.alpha, place, region)


def paint(image: Bytes, layer: Layer, place: Affine) -> None:
    """Blend a placed layer over an image uint8 [h, w, 3], in place."""
    region = inside(region_of(layer, place), image.shape[1], image.shape[0])
    if is_empty(region):
        return
    x0, y0, x1, y1 = region
    over = _warped(layer.bgra, place, region)
    part = image[y0:y1, x0:x1]
    rest = cv2.bitwise_not(cv2.extractChannel(over, 3))
    below = cv2.multiply(part, cv2.merge([rest, rest, rest]), scale=1 / 255)
    image[y0:y1, x0:x1] = cv2.add(below, cv2.cvtColor(over, cv2.COLOR_BGRA2BGR))


def _warped(picture: Bytes, place: Affine, region: Region) -> Bytes:
    """Bilinear samples of an image in a region of the image it is placed in; zero beyond its border."""
    x0, y0, x1, y1 = region
    return warp(picture, compose(np.array([[1.0, 0, -x0], [0, 1.0, -y0]]), place), x1 - x0, y1 - y0)


def warp(picture: Bytes, place: Affine, width: int, height: int) -> Bytes:
    """Bilinear samples, 0 beyond the border.

    As ``cv2.warpAffine``, but for a map between edge coordinates; OpenCV's refer to pixel centres.
    """
    shift = place[:, :2] @ np.array([0.5, 0.5]) + place[:, 2] - 0.5
    matrix: Any = np.column_stack([place[:, :2], shift])
    done = cv2.warpAffine(picture, matrix, (width, height), flags=cv2.INTER_LINEAR)
    return np.asarray(done, np.uint8)
