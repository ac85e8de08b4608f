"""Draws a textured target that moves over a textured background: images for measurements without a camera."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.geometry import Box

STEPS = 24
TRAVEL = 0.2  # shift of the target's centre, as a share of the image's width and height
PERIOD_NS = 33_333_333


def pictures(size: tuple[int, int]) -> list[tuple[NDArray[np.uint8], Box]]:
    """Return `STEPS` images, uint8 [H, W, 3] BGR, each with the target's box, px.

    ``size``: width and height of the images, px.
    """
    width, height = size
    ground, rng = _ground(size)
    side = max(8, min(width, height) // 8)
    target = _blurred(rng.integers(0, 255, (side, side, 3)), side / 24)
    target[..., 2] |= 128  # red, unlike the ground
    found = []
    for step in range(STEPS):
        share = 0.4 + TRAVEL * step / STEPS
        left, top = round(share * width) - side // 2, round(share * height) - side // 2
        picture = ground.copy()
        picture[top : top + side, left : left + side] = target
        found.append((picture, Box(float(left), float(top), float(side), float(side))))
    return found


def background(size: tuple[int, int]) -> NDArray[np.uint8]:
    """Return the background of the images, uint8 [H, W, 3] BGR, without the target."""
    return _ground(size)[0]


def endless(size: tuple[int, int]) -> Iterator[tuple[NDArray[np.uint8], int, Box]]:
    """Yield images in which the target moves back and forth without end.

    Yields the picture, uint8 [H, W, 3] BGR, its stamp in ns and the target's box in px. The stamps begin at 1
    s and have a rate of 30 Hz.
    """
    drawn = pictures(size)
    for count, index in enumerate(itertools.cycle([*range(STEPS), *range(STEPS - 2, 0, -1)])):
        picture, box = drawn[index]
        yield picture, 10**9 + count * PERIOD_NS, box


def _ground(size: tuple[int, int]) -> tuple[NDArray[np.uint8], np.random.Generator]:
    """Return the background and the random generator that drew it, from which the target is drawn next."""
    width, height = size
    rng = np.random.default_rng(7)
    return _blurred(rng.integers(40, 150, (height, width, 3)), max(width, height) / 300), rng


def _blurred(noise: NDArray[np.int64], sigma_px: float) -> NDArray[np.uint8]:
    """Blur noise and stretch it to its old range, so that it has corners that optical flow can follow."""
    smooth = cv2.GaussianBlur(noise.astype(np.float32), (0, 0), max(1.0, sigma_px))
    scaled = cv2.normalize(smooth, smooth, float(noise.min()), float(noise.max()), cv2.NORM_MINMAX)
    return np.asarray(scaled, np.uint8)
