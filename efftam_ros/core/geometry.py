"""Boxes, their overlap, and the view: the map from image pixels to the network's input.

Pixel convention everywhere: the top-left corner of the top-left pixel is (0, 0), pixel ``i`` covers ``[i,
i+1)`` and its centre is ``i + 0.5``. Boxes are half-open: an image of width W has edges 0 and W.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_INF = math.inf


@dataclass(frozen=True)
class Box:
    """An axis-aligned box in pixels, by its top-left corner and its size; its edges are half-open."""

    x: float
    y: float
    width: float
    height: float

    @classmethod
    def from_edges(cls, x0: float, y0: float, x1: float, y1: float) -> Box:
        """Build a box from its left, top, right and bottom edge."""
        return cls(float(x0), float(y0), float(x1) - float(x0), float(y1) - float(y0))

    @classmethod
    def from_centre(cls, cx: float, cy: float, width: float, height: float) -> Box:
        """Build a box from its centre (cx, cy), width and height."""
        return cls(float(cx) - width / 2, float(cy) - height / 2, float(width), float(height))

    @property
    def x1(self) -> float:
        return self.x + self.width

    @property
    def y1(self) -> float:
        return self.y + self.height

    @property
    def cx(self) -> float:
        return self.x + self.width / 2

    @property
    def cy(self) -> float:
        return self.y + self.height / 2

    @property
    def area(self) -> float:
        return max(self.width, 0.0) * max(self.height, 0.0)

    @property
    def size(self) -> float:
        """Side of the square with the same area, sqrt(width * height), px."""
        return math.sqrt(max(self.width, 0.0) * max(self.height, 0.0))

    @property
    def is_finite(self) -> bool:
        return all(map(math.isfinite, self.xywh()))

    @property
    def is_empty(self) -> bool:
        """True for a box without area, or with a number that is not finite."""
        # Plain comparisons are faster than calls of `math.isfinite`, and this is checked a dozen times per
        # frame. Each of them is False for NaN.
        return not (
            0 < self.width < _INF
            and 0 < self.height < _INF
            and -_INF < self.x < _INF
            and -_INF < self.y < _INF
        )

    def edges(self) -> tuple[float, float, float, float]:
        """Return the left, top, right and bottom edge."""
        return self.x, self.y, self.x + self.width, self.y + self.height

    def xywh(self) -> tuple[float, float, float, float]:
        return self.x, self.y, self.width, self.height

    def clipped(self, width: float, height: float) -> Box:
        """Return the part of the box that lies inside an image of this size, px; it may be empty."""
        left, top, right, bottom = self.edges()
        x0, y0 = min(max(left, 0.0), width), min(max(top, 0.0), height)
        x1, y1 = min(max(right, 0.0), width), min(max(bottom, 0.0), height)
        return Box(x0, y0, x1 - x0, y1 - y0)

    def moved(self, dx: float, dy: float) -> Box:
        return Box(self.x + dx, self.y + dy, self.width, self.height)


def iou(a: Box, b: Box) -> float:
    """Return the intersection over union of two boxes, 0..1; 0 when one of them is empty."""
    # If the sum is finite, each number is. This is faster than `Box.is_empty`.
    total = a.x + a.y + a.width + a.height + b.x + b.y + b.width + b.height
    if not (a.width > 0 and a.height > 0 and b.width > 0 and b.height > 0 and -_INF < total < _INF):
        return 0.0
    w = min(a.x + a.width, b.x + b.width) - max(a.x, b.x)
    h = min(a.y + a.height, b.y + b.height) - max(a.y, b.y)
    if w <= 0 or h <= 0:
        return 0.0
    inter = w * h
    return inter / (a.width * a.height + b.width * b.height - inter)


NESTED = 0.7
"""Two boxes show one object if at least this share of the smaller box lies inside the other."""


def are_nested(a: Box, b: Box) -> bool:
    """Return whether two boxes show one object at two scales: one lies mostly inside the other. False when
    one of them is empty."""
    if a.is_empty or b.is_empty:
        return False
    overlap = iou(a, b)
    return overlap / (1 + overlap) * (a.area + b.area) >= NESTED * min(a.area, b.area)


@dataclass(frozen=True)
class View:
    """The region of the image that the network receives, as a map from image pixels to network pixels.

    ``network = (image - origin) * scale`` along each axis, in edge coordinates (see the module's docstring).

    Attributes:
        x: The image's x coordinate at the left edge of the network's input, px.
        y: The image's y coordinate at the top edge of the network's input, px.
        scale_x: Network px per image px, horizontally.
        scale_y: Network px per image px, vertically.
        side: Side of the network's input, network px.
    """

    x: float
    y: float
    scale_x: float
    scale_y: float
    side: int

    @classmethod
    def full(cls, width: int, height: int, side: int) -> View:
        """Return the view of a whole image of this size, px. It is resized to the square input without
        keeping its aspect ratio, as in EfficientTAM's reference code. ``side``: side of the network's input,
        network px."""
        return cls(0.0, 0.0, side / width, side / height, side)

    @classmethod
    def window(cls, cx: float, cy: float, extent: float, side: int) -> View:
        """Return the view of a square around (cx, cy). Its parts outside the image are black.

        ``extent``: side of the square, image px; ``side``: side of the network's input, network px.
        """
        return cls(cx - extent / 2, cy - extent / 2, side / extent, side / extent, side)

    @property
    def extent(self) -> tuple[float, float]:
        """Width and height of the visible region, image px."""
        return self.side / self.scale_x, self.side / self.scale_y

    def is_full(self, width: int, height: int) -> bool:
        """Return whether this view is the `full` view of an image of this size, px."""
        scales = self.side / width, self.side / height
        return self.x == self.y == 0.0 and (self.scale_x, self.scale_y) == scales

    def pixels(self, width: int, height: int, margin: int) -> tuple[int, int, int, int]:
        """Return the first column, first row, end column and end row of the image's pixels inside the view.

        The ends are exclusive. Where the view lies outside the image, the end column or end row is not
        greater than the first one.

        Args:
            width: Width of the image, px.
            height: Height of the image, px.
            margin: Number of further pixels that are included on every side, as far as the image reaches.
        """
        extent_x, extent_y = self.side / self.scale_x, self.side / self.scale_y
        return (
            max(0, math.floor(self.x) - margin),
            max(0, math.floor(self.y) - margin),
            min(width, math.ceil(self.x + extent_x) + margin),
            min(height, math.ceil(self.y + extent_y) + margin),
        )

    def to_network(self, box: Box) -> Box:
        return Box(
            (box.x - self.x) * self.scale_x,
            (box.y - self.y) * self.scale_y,
            box.width * self.scale_x,
            box.height * self.scale_y,
        )

    def to_image(self, box: Box) -> Box:
        return Box(
            box.x / self.scale_x + self.x,
            box.y / self.scale_y + self.y,
            box.width / self.scale_x,
            box.height / self.scale_y,
        )

    def points_to_network(self, points: NDArray[np.float32]) -> NDArray[np.float32]:
        """Convert points [n, 2] from image px to network px, float32 [n, 2]."""
        origin = np.array([self.x, self.y])
        return ((points - origin) * np.array([self.scale_x, self.scale_y])).astype(np.float32)
