"""The cars of the synthetic scene: an image with smooth edges, and its exact outline."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

LENGTH, WIDTH, CORNER = 50.0, 22.0, 7.0
HEIGHT = 13.0
FINE = 8  # sprite px per world px
GLASS, WHITE, RED = (58.0, 50.0, 44.0), (225.0, 238.0, 240.0), (40.0, 40.0, 190.0)
# Outlines in world px about the car's centre, front to +x; those of one side are mirrored to the other.
WINDSCREEN = [(4.0, -8.0), (11.5, -9.0), (11.5, 9.0), (4.0, 8.0)]
REAR_WINDOW = [(-17.5, -8.2), (-13.0, -7.6), (-13.0, 7.6), (-17.5, 8.2)]
SIDE_WINDOW = [(-12.0, 8.4), (3.0, 8.4), (8.0, 9.8), (-14.0, 9.8)]
LAMP = [(21.5, 5.0), (24.0, 5.0), (23.0, 9.0), (20.5, 9.0)]
TAIL_LIGHT = [(-24.3, 5.0), (-22.5, 5.0), (-22.0, 9.3), (-23.6, 9.3)]
BONNET_LINE = [(13.0, 7.2), (21.0, 6.0), (21.0, 6.4), (13.0, 7.6)]
HIGHLIGHT = [(-11.0, -5.5), (2.0, -5.5), (2.0, -2.5), (-11.0, -2.5)]
SUPER = 4  # samples per image px and axis when it is drawn
MARGIN = 4.0  # world px around the car in its sprite


@dataclass(frozen=True)
class Sprite:
    """``bgr`` float32 [h, w, 3] 0..255 and ``cover`` float32 [h, w] 0..1 at `FINE` px per world px; the
    car's centre is the middle of the image and its front points to +x."""

    bgr: NDArray[np.float32]
    cover: NDArray[np.float32]


def outline() -> NDArray[np.float64]:
    """The car's silhouette as a convex polygon [n, 2] in world px about its centre, front to +x."""
    quarter = np.linspace(0, np.pi / 2, 13)
    points = []
    for turn, (sx, sy) in enumerate(((1, 1), (-1, 1), (-1, -1), (1, -1))):
        angle = quarter + turn * np.pi / 2
        middle = np.array((sx * (LENGTH / 2 - CORNER), sy * (WIDTH / 2 - CORNER)))
        points.append(middle + CORNER * np.stack([np.cos(angle), np.sin(angle)], axis=1))
    return np.vstack(points)


def paint_car(body: tuple[int, int, int]) -> Sprite:
    """A car in this BGR colour, seen from above."""
    half = np.array((LENGTH, WIDTH)) / 2 + MARGIN
    width, height = (round(2 * v * FINE) for v in half)
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    x, y = (x + 0.5) / FINE - half[0], (y + 0.5) / FINE - half[1]
    paint = np.array(body, np.float32)
    # Curved flanks: darker towards the sides, a highlight along the upper left of the roof.
    bgr = paint * (1.05 - 0.45 * np.abs(2 * y / WIDTH)[..., None] ** 4)
    bgr = np.ascontiguousarray(bgr * (1.03 - 0.06 * (2 * x / LENGTH)[..., None]))

    def fill(points: list[tuple[float, float]], colour: Iterable[float]) -> None:
        fixed = np.round((np.array(points) + half) * FINE * 16 - 8).astype(np.int32)
        cv2.fillPoly(bgr, [fixed], [float(v) for v in colour], cv2.LINE_8, 4)

    bonnet, highlight = paint * 0.75, np.minimum(paint * 1.25, 255)
    fill(WINDSCREEN, GLASS)
    fill(REAR_WINDOW, GLASS)
    for side in (-1, 1):
        for part, colour in ((SIDE_WINDOW, GLASS), (LAMP, WHITE), (TAIL_LIGHT, RED), (BONNET_LINE, bonnet)):
            fill([(px, side * py) for px, py in part], colour)
    fill(HIGHLIGHT, highlight)
    cover = np.zeros((height, width), np.uint8)
    fixed = np.round((outline() + half) * FINE * 16 - 8).astype(np.int32)
    cv2.fillPoly(cover, [fixed], 255, cv2.LINE_AA, 4)
    return Sprite(np.asarray(bgr, np.float32), np.asarray(cover / 255, np.float32))


@dataclass(frozen=True)
class Patch:
    """A car placed in the image: float32 BGR [h, w, 3] and coverage [h, w], top-left pixel (x, y)."""

    x: int
    y: int
    bgr: NDArray[np.float32]
    cover: NDArray[np.float32]

    def visible_part(self, width: int, height: int) -> tuple[slice, slice, slice, slice] | None:
        """Rows and columns of the image that it covers, then of the patch; None outside the image."""
        h, w = self.cover.shape
        x0, y0, x1, y1 = max(self.x, 0), max(self.y, 0), min(self.x + w, width), min(self.y + h, height)
        if x0 >= x1 or y0 >= y1:
            return None
        return (
            slice(y0, y1),
            slice(x0, x1),
            slice(y0 - self.y, y1 - self.y),
            slice(x0 - self.x, x1 - self.x),
        )


def place(sprite: Sprite, to_image: NDArray[np.float64]) -> Patch:
    """Draw a car through an affine map [2, 3] from its own coordinates (world px) to image px, with smooth
    edges."""
    half = np.array((LENGTH, WIDTH)) / 2 + MARGIN
    corners = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)]) * half @ to_image[:, :2].T + to_image[:, 2]
    x0, y0 = np.floor(corners.min(axis=0)).astype(int) - 1
    x1, y1 = np.ceil(corners.max(axis=0)).astype(int) + 1
    width, height = int(x1 - x0) * SUPER, int(y1 - y0) * SUPER
    # Sprite px -> car coordinates -> image px -> samples, all in edge coordinates; OpenCV counts pixel
    # centres.
    matrix = np.zeros((2, 3))
    matrix[:, :2] = to_image[:, :2] * SUPER / FINE
    matrix[:, 2] = (to_image[:, 2] - to_image[:, :2] @ half - (x0, y0)) * SUPER
    matrix[:, 2] += matrix[:, :2] @ (0.5, 0.5) - 0.5
    size, target = (width, height), (int(x1 - x0), int(y1 - y0))
    bgr = cv2.warpAffine(sprite.bgr, matrix, size, flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    cover = cv2.warpAffine(sprite.cover, matrix, size, flags=cv2.INTER_LINEAR)
    return Patch(
        int(x0),
        int(y0),
        np.asarray(cv2.resize(bgr, target, interpolation=cv2.INTER_AREA), np.float32),
        np.asarray(cv2.resize(cover, target, interpolation=cv2.INTER_AREA), np.float32),
    )
