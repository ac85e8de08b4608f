"""Ground, cut-outs and occluders of a scene, made from photographs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import cv2
import numpy as np
from numpy.typing import NDArray

from training.scene_layers import Bytes, Layer

if TYPE_CHECKING:
    from training.material import Sprite

OPAQUE = 128


def ground(photograph: Bytes, scale: float, width: int, height: int) -> Bytes:
    """A BGR image uint8 [height, width, 3] of any size from a photograph (RGB).

    The photograph is enlarged by ``scale`` and mirrored at its borders; its own texture is added faintly at
    the original scale, because an enlarged photograph has no fine detail.
    """
    bgr = photograph[..., ::-1].astype(np.float32)
    # Clipped, because strong edges would look embossed.
    fine = np.clip(bgr - cv2.GaussianBlur(bgr, (0, 0), 2.0), -8, 8)
    enlarged = cv2.resize(bgr, None, fx=scale, fy=scale, interpolation=cv2.INTER_CUBIC)
    large = np.asarray(enlarged, np.float32)
    mirrored = _tiled(large, width, height)
    return np.asarray(np.clip(mirrored + _tiled(fine, width, height), 0, 255), np.uint8)


def _tiled(picture: NDArray[np.float32], width: int, height: int) -> NDArray[np.float32]:
    def index(length: int, count: int) -> NDArray[np.int64]:
        there_and_back = np.r_[np.arange(length), np.arange(length)[::-1]]
        return np.asarray(there_and_back[np.arange(count) % (2 * length)], np.int64)

    return picture[index(picture.shape[0], height)][:, index(picture.shape[1], width)]


def is_solid(sprite: Sprite) -> bool:
    """Whether a cut-out can be tracked at 20 px, i.e. is neither a stick nor a wire frame."""
    opaque = sprite.rgba[..., 3] >= OPAQUE
    height, width = opaque.shape
    return bool(
        min(width, height) >= 16 and max(width, height) <= 3 * min(width, height) and opaque.mean() > 0.3
    )


def cut_out(sprite: Sprite, size: float, gains: NDArray[np.float64], flip: bool) -> Layer:
    """Make a layer of sqrt(width x height) = ``size`` px with soft edges from a cut-out.

    Its colours (blue, green, red) are multiplied by ``gains``.
    """
    rgba = sprite.rgba[:, ::-1] if flip else sprite.rgba
    height, width = rgba.shape[:2]
    factor = size / math.sqrt(width * height)
    shape = (max(2, round(width * factor)), max(2, round(height * factor)))
    how = cv2.INTER_AREA if factor < 1 else cv2.INTER_CUBIC
    alpha = rgba[..., 3:].astype(np.float32) / 255
    # Straight colours must be weighted by alpha before resampling, else the colour under transparent pixels
    # appears as a rim.
    colours = cv2.resize(
        np.ascontiguousarray(rgba[..., 2::-1]).astype(np.float32) * alpha, shape, interpolation=how
    )
    small = np.clip(cv2.resize(alpha[..., 0], shape, interpolation=how), 0, 1)
    bgr = np.clip(colours / np.maximum(small, 1e-3)[..., None] * gains, 0, 255).astype(np.uint8)
    bgr = cv2.copyMakeBorder(bgr, 2, 2, 2, 2, cv2.BORDER_REPLICATE)
    soft = cv2.GaussianBlur(
        cv2.copyMakeBorder(small, 2, 2, 2, 2, cv2.BORDER_CONSTANT, value=0.0), (0, 0), 0.5
    )
    return Layer.of(np.asarray(bgr, np.uint8), (soft * 255).round().astype(np.uint8))


def depths(layer: Layer) -> NDArray[np.float32]:
    """Distance of each pixel to the nearest pixel that is not fully opaque, px [h, w]; 0 outside the opaque
    part."""
    solid = cv2.copyMakeBorder(
        (layer.alpha >= 254).astype(np.uint8), 1, 1, 1, 1, cv2.BORDER_CONSTANT, value=0
    )
    return np.asarray(cv2.distanceTransform(solid, cv2.DIST_L2, 5)[1:-1, 1:-1], np.float32)


def hiding_reach(layer: Layer, direction: float, radius: float) -> float:
    """How far a disc of ``radius`` px may be from the layer's centre and still be hidden, px.

    Measured along ``direction`` rad and against it; the mean of both, 0 if it is not hidden at the centre.
    """
    depth = depths(layer)
    height, width = depth.shape
    steps = np.arange(0, max(width, height))
    total = 0.0
    for sign in (-1, 1):
        x = np.round(width / 2 - 0.5 + sign * steps * math.cos(direction)).astype(int)
        y = np.round(height / 2 - 0.5 + sign * steps * math.sin(direction)).astype(int)
        kept = (x >= 0) & (x < width) & (y >= 0) & (y < height)
        hidden = np.r_[depth[y[kept], x[kept]] >= radius, False]
        total += float(np.argmin(hidden))
    return total / 2


def occluder(rng: np.random.Generator, photograph: Bytes, shape: str, length: float, breadth: float) -> Layer:
    """A piece of another photograph that hides what passes under it along its ``length`` (x).

    "roof" and "bridge" have straight edges, "wood" wavy ones.
    """
    margin = 4
    width, height = round(length) + 2 * margin, round(breadth) + 2 * margin
    alpha: Bytes = np.zeros((height, width), np.uint8)
    outline = _wavy(rng, length, breadth) if shape == "wood" else _rectangle(length, breadth)
    points = np.round((outline + np.array([width, height]) / 2 - 0.5) * 16).astype(np.int32)
    cv2.fillPoly(alpha, [points], 255, cv2.LINE_AA, shift=4)
    alpha = np.asarray(cv2.GaussianBlur(alpha, (0, 0), 0.7), np.uint8)
    x, y = (int(n) for n in rng.integers(0, 200, 2))
    texture = ground(photograph, rng.uniform(0.8, 2.0), width + x, height + y)[y:, x:]
    gained = np.clip(texture * rng.uniform(0.6, 1.25), 0, 255).astype(np.uint8)
    return Layer.of(np.ascontiguousarray(gained), alpha)


def _rectangle(length: float, breadth: float) -> NDArray[np.float64]:
    x, y = length / 2, breadth / 2
    return np.array([[-x, -y], [x, -y], [x, y], [-x, y]])


def _wavy(rng: np.random.Generator, length: float, breadth: float) -> NDArray[np.float64]:
    angle = np.linspace(0, 2 * math.pi, 120, endpoint=False)
    c, s = np.cos(angle), np.sin(angle)
    radius = (np.abs(c) ** 6 + np.abs(s) ** 6) ** (-1 / 6)  # a rectangle with rounded corners
    for order in range(3, 12):
        radius *= 1 + 0.15 / order * np.sin(order * angle + rng.uniform(0, 2 * math.pi))
    return np.column_stack([radius * c * length / 2, radius * s * breadth / 2])


def cloud(rng: np.random.Generator, photograph: Bytes, radius: float) -> Layer:
    """Smoke, dust or a tree crown near the camera: opaque within ``radius`` px, fading out over half as much
    again."""
    side = 2 * math.ceil(1.7 * radius) + 2
    y, x = np.mgrid[:side, :side] - (side - 1) / 2
    angle, distance = np.arctan2(y, x), np.hypot(x, y) / radius
    rim = 1.2 + sum(
        0.12 / k * np.sin(k * angle + rng.uniform(0, 2 * math.pi)) for k in range(2, 6)
    )  # mean edge, in radii
    alpha = np.clip((rim + 0.25 - distance) / 0.4, 0, 1)
    alpha[distance <= 1] = 1
    x0, y0 = (int(n) for n in rng.integers(0, 200, 2))
    texture = ground(photograph, rng.uniform(0.8, 2.0), side + x0, side + y0)[y0:, x0:]
    return Layer.of(np.ascontiguousarray(texture), (alpha * 255).round().astype(np.uint8))
