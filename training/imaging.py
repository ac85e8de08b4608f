"""Places images at any position and scale, by pyramids with premultiplied alpha, affine maps and blending."""

from __future__ import annotations

import math
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Matrix = NDArray[np.float64]
"""2x3 affine map from pixel indices of the source to the result's, as in cv2.warpAffine."""
Point = NDArray[np.float64]

Pyramid = list[Bytes]
"""An image [h,w] or [h,w,c], halved several times; cut-outs have premultiplied alpha in channel 3."""

MIN_LEVEL_SIDE = 6


def pyramid(image: Bytes, levels: int = 4) -> Pyramid:
    """Return the image and up to ``levels`` successive halvings of it by area averaging."""
    out = [image]
    for _ in range(levels):
        height, width = out[-1].shape[:2]
        if min(height, width) < 2 * MIN_LEVEL_SIDE:
            break
        half = cv2.resize(out[-1], (width // 2, height // 2), interpolation=cv2.INTER_AREA)
        out.append(np.asarray(half, np.uint8))
    return out


def sprite_pyramid(rgba: Bytes, margin: int = 2) -> Pyramid:
    """Return the pyramid of a cut-out with straight alpha, premultiplied, with a transparent margin.

    Its edges are softened by about a pixel, because many cut-outs have hard edges, unlike camera images.
    """
    padded = cv2.copyMakeBorder(rgba, *(margin,) * 4, cv2.BORDER_REPLICATE)
    alpha = np.zeros(padded.shape[:2], np.float32)
    alpha[margin:-margin, margin:-margin] = rgba[..., 3]
    # Only pixels inside the cut-out become more transparent, so that no colour from outside appears.
    alpha = np.minimum(alpha, cv2.GaussianBlur(alpha, (3, 3), 0.7))
    out = np.empty(padded.shape, np.uint8)
    out[..., :3] = padded[..., :3] * (alpha / 255)[..., None]
    out[..., 3] = alpha
    return pyramid(out)


def similarity(
    scale: float, angle: float, source: Any, target: Any, mirrored: bool = False, aspect: float = 1.0
) -> Matrix:
    """Return the map that moves the point ``source`` to ``target``, rotates by ``angle`` rad and scales.

    It also mirrors if ``mirrored``, and stretches x over y by ``aspect`` while the area stays.
    """
    cos, sin = math.cos(angle) * scale, math.sin(angle) * scale
    stretch = math.sqrt(aspect)
    flip = -1.0 if mirrored else 1.0
    linear = np.array([[cos * stretch * flip, -sin / stretch], [sin * stretch * flip, cos / stretch]])
    return np.column_stack([linear, np.asarray(target, float) - linear @ np.asarray(source, float)])


def warp(picture: Pyramid, matrix: Matrix, side: int, border: int = cv2.BORDER_CONSTANT) -> Bytes:
    """Sample a view [side, side] of the image bilinearly, from the pyramid level just finer than needed."""
    scale = math.sqrt(abs(float(np.linalg.det(matrix[:, :2]))))
    level = int(np.clip(math.floor(math.log2(1 / max(scale, 1e-6)) + 0.3), 0, len(picture) - 1))
    image = picture[level]
    ratio = np.array([picture[0].shape[1] / image.shape[1], picture[0].shape[0] / image.shape[0]])
    inner = matrix.copy()
    inner[:, :2] = matrix[:, :2] * ratio
    inner[:, 2] += matrix[:, :2] @ (ratio / 2 - 0.5)
    return np.asarray(cv2.warpAffine(image, inner, (side, side), flags=cv2.INTER_LINEAR, borderMode=border))


def over(canvas: Bytes, layer: Bytes, opacity: float = 1.0) -> Bytes:
    """Blend the premultiplied ``layer`` [h,w,4] over ``canvas`` [h,w,3]."""
    if opacity < 1:
        layer = np.asarray(cv2.convertScaleAbs(layer, alpha=opacity), np.uint8)
    clear = cv2.merge([255 - layer[..., 3]] * 3)
    return np.asarray(cv2.add(cv2.multiply(canvas, clear, scale=1 / 255), layer[..., :3]), np.uint8)


def centre_of(image: Bytes) -> Point:
    return np.array([image.shape[1], image.shape[0]]) / 2 - 0.5


def extent_of(image: Bytes) -> float:
    """Return the square root of the image's area, px."""
    return math.sqrt(image.shape[0] * image.shape[1])


def tinted(rng: np.random.Generator, picture: Pyramid) -> Pyramid:
    """Return the cut-out, recoloured with probability one half."""
    if rng.random() < 0.5:
        return picture
    gains = rng.uniform(0.4, 1.2, 3) if rng.random() < 0.6 else np.full(3, rng.uniform(0.3, 1.2))
    order = rng.permutation(3) if rng.random() < 0.3 else np.arange(3)
    out = []
    for image in picture:
        level = image.copy()
        coloured = image[..., order] * gains
        # A premultiplied colour can't exceed its alpha.
        level[..., :3] = np.minimum(coloured, image[..., 3:])
        out.append(level)
    return out
