"""The published box of rendered shapes, with the shipped network: thin parts, bars, the image's border."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from support.scripted_target import OneTarget

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.geometry import Box, iou
from efftam_ros.core.types import Frame, Image, Prompt
from efftam_ros.runtime.backends import PipelineConfig
from efftam_ros.runtime.opening import open_pipeline, open_targets

SIZE = WIDTH, HEIGHT = 480, 360
FRAMES = 9
GROUND = cv2.resize(
    np.random.default_rng(3).integers(110, 150, (HEIGHT // 3, WIDTH // 3, 3), np.uint8),
    SIZE,
    interpolation=cv2.INTER_CUBIC,
)
Scene = Callable[[int], tuple[NDArray[Any], Box]]
DARK, RED, LIGHT = (40, 45, 60), (50, 60, 140), (200, 205, 205)


def helicopter(number: int) -> tuple[NDArray[Any], Box]:
    """A body of 52 x 28 px below a rotor of 96 x 2 px, and the box around both."""
    image = GROUND.copy()
    x, y = 211 + 3 * number, 190 + number
    cv2.ellipse(image, (x, y), (26, 14), 0, 0, 360, DARK, -1, cv2.LINE_AA)
    cv2.line(image, (x - 48, y - 20), (x + 48, y - 20), DARK, 2, cv2.LINE_AA)
    cv2.line(image, (x, y - 20), (x, y - 10), DARK, 3, cv2.LINE_AA)
    return image, Box.from_edges(x - 48, y - 21, x + 48, y + 14)


def car(number: int, scale: float = 1.0, right: int = 0, down: int = 0) -> tuple[NDArray[Any], Box]:
    """A car of 64 x 40 px times ``scale``, with two windows, that many px further right and down."""
    image = GROUND.copy()
    x, y = 150 + 3 * number + right, 150 + number + down
    for colour, *edges in ((RED, 0, 0, 64, 40), (DARK, 10, 6, 24, 34), (DARK, 44, 6, 54, 34)):
        left, top, end, bottom = (round(scale * edge) for edge in edges)
        image[y + top : y + bottom, x + left : x + end] = colour
    return image, Box(x, y, round(64 * scale), round(40 * scale))


def behind_bars(number: int) -> tuple[NDArray[Any], Box]:
    """A square of 60 px behind bars of 9 px, 36 px apart, that rest."""
    image = GROUND.copy()
    x, y = 120 + 3 * number, 120 + number
    cv2.rectangle(image, (x, y), (x + 59, y + 59), RED, -1)
    for top in range(26, HEIGHT, 36):
        image[top : top + 9] = LIGHT
    return image, Box(x, y, 60, 60)


def leaving(number: int) -> tuple[NDArray[Any], Box]:
    """A square of 60 px that crosses the image's left border."""
    image = GROUND.copy()
    x1 = 50 - 2 * number
    cv2.rectangle(image, (-100, 150), (x1 - 1, 189), RED, -1)
    return image, Box(0, 150, x1, 40)


def tracked(scene: Scene) -> list[tuple[Box, Box, Box]]:
    """Of each image after the selection: the published box, the mask's, the true one."""
    tracker = OneTarget(open_targets(open_pipeline(PipelineConfig(threads=1)), TrackerConfig(identity=False)))
    found = []
    for number in range(FRAMES):
        image, truth = scene(number)
        frame = Frame(Image.from_array(image), 33_000_000 * (number + 1))
        track, mask = tracker.step(frame, None if number else Prompt(box=truth)), tracker.mask()
        assert track.measured
        assert track.box is not None
        assert mask is not None
        found.append((track.box, Box(*map(float, cv2.boundingRect(mask))), truth))
        tracker.remember()
    return found[1:]


def test_a_rotor_that_the_mask_leaves_out_makes_the_box_wider() -> None:
    for box, of_mask, truth in tracked(helicopter):
        assert of_mask.width < 0.75 * truth.width
        assert box.width > 1.03 * of_mask.width
        assert iou(box, truth) > iou(of_mask, truth) + 0.02


def test_a_box_reaches_across_the_bars_before_the_target() -> None:
    assert min(iou(box, truth) for box, _, truth in tracked(behind_bars)) > 0.8


def test_a_target_that_leaves_the_image_ends_exactly_at_its_border() -> None:
    found = tracked(leaving)
    assert [box.x for box, _, _ in found] == [0.0] * len(found)
    assert min(iou(box, truth) for box, _, truth in found) > 0.85


@pytest.mark.parametrize(("scale", "right", "down"), [(1.0, 61, 40), (1.5, 20, 30)])
def test_a_scene_that_is_moved_or_enlarged_moves_or_enlarges_the_box(
    scale: float, right: int, down: int
) -> None:
    here, there = tracked(car), tracked(lambda number: car(number, scale, right, down))
    for (box, _, truth), (other, _, shown) in zip(here, there, strict=True):
        expected = Box(
            shown.x + scale * (box.x - truth.x),
            shown.y + scale * (box.y - truth.y),
            scale * box.width,
            scale * box.height,
        )
        assert iou(other, expected) > 0.9
