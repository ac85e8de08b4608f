"""Placing pictures, and what the camera of a training clip does to them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training import imaging
from training.degradations import Camera

SIDE = 192
seeds = st.integers(0, 2**32 - 1)
coordinate = st.floats(-300, 300)


def blob(size: tuple[int, int], centre: tuple[float, float], sigma: float) -> np.ndarray:
    """A round spot on black, uint8 [h,w]."""
    x, y = np.meshgrid(np.arange(size[0]), np.arange(size[1]))
    spot = np.exp(-((x - centre[0]) ** 2 + (y - centre[1]) ** 2) / (2 * sigma**2))
    return (250 * spot).astype(np.uint8)


def centroid(image: np.ndarray) -> np.ndarray:
    """Sub-pixel centre of the brightness, pixel indices (x, y)."""
    weight = image.astype(float)
    y, x = np.indices(image.shape)
    return np.array([(x * weight).sum(), (y * weight).sum()]) / weight.sum()


# Affine maps


@settings(deadline=None)
@given(
    st.floats(0.01, 20), st.floats(-7, 7), coordinate, coordinate, coordinate, coordinate, st.booleans(),
    st.floats(0.5, 2),
)  # fmt: skip
def test_a_similarity_takes_source_to_target(scale, angle, x, y, u, v, mirrored, aspect):
    matrix = imaging.similarity(scale, angle, (x, y), (u, v), mirrored, aspect)
    assert matrix @ [x, y, 1] == pytest.approx([u, v], abs=1e-6 * max(1.0, scale) * 300)
    determinant = np.linalg.det(matrix[:, :2])
    assert determinant == pytest.approx(-(scale**2) if mirrored else scale**2, rel=1e-9)


# Pyramids and warping


@settings(max_examples=60, deadline=None)
@given(
    scale=st.floats(0.2, 2.0),
    angle=st.floats(-math.pi, math.pi),
    x=st.floats(140, 260),
    y=st.floats(130, 190),
    mirrored=st.booleans(),
    trimmed=st.integers(0, 3),
)
def test_a_warped_level_lies_where_the_warped_original_would(scale, angle, x, y, mirrored, trimmed):
    """Odd sides too, whose halvings are not exactly half as large."""
    picture = blob((401 - trimmed, 321 - trimmed), (x, y), sigma=max(6.0, 3.0 / scale))
    target = (SIDE / 2 + 5.3, SIDE / 2 - 3.7)
    matrix = imaging.similarity(scale, angle, (x, y), target, mirrored)
    levels = imaging.pyramid(picture)
    assert centroid(imaging.warp(levels, matrix, SIDE)) == pytest.approx(target, abs=0.1)
    assert centroid(imaging.warp(levels[:1], matrix, SIDE)) == pytest.approx(target, abs=0.1)


# The camera

STILL = Camera(
    tables=np.broadcast_to(np.arange(256)[None, :, None], (2, 256, 3)).astype(np.uint8),
    is_grey=False, blur=0, blur_angle=0.0, noise=0.0, jpeg=None,
)  # fmt: skip
"""A camera that records what it sees."""


def shot(camera: Camera, image: np.ndarray, frame: int = 0, seed: int = 0) -> np.ndarray:
    return camera.shoot(np.random.default_rng(seed), image, frame)


@pytest.mark.parametrize(("angle", "axis"), [(0.0, 1), (math.pi / 2, 0)])
def test_motion_blurs_along_its_direction_alone_and_keeps_the_brightness(angle, axis):
    point = np.zeros((21, 21, 3), np.uint8)
    point[10, 10] = 210
    blurred = shot(replace(STILL, blur=3, blur_angle=angle), point)[..., 0].astype(int)
    assert np.count_nonzero(blurred.sum(1 - axis)) == 7
    assert np.count_nonzero(blurred.sum(axis)) == 1
    assert blurred.sum() == pytest.approx(210, abs=7)
    assert centroid(blurred) == pytest.approx([10, 10], abs=0.05)


def test_jpeg_keeps_the_order_of_the_channels():
    coded = shot(replace(STILL, jpeg=90), np.full((32, 32, 3), (220, 90, 20), np.uint8))
    assert coded.reshape(-1, 3).mean(0) == pytest.approx([220, 90, 20], abs=4)
