"""Colours of a box: alike for the same thing elsewhere, not for another thing, silent without pixels."""

from __future__ import annotations

import numpy as np
import pytest

from efftam_ros.core.geometry import Box
from efftam_ros.core.types import Image
from efftam_ros.runtime.image.target import ColourAppearance

RED, GREY = (40, 40, 200), (120, 120, 120)
SOURCE = ColourAppearance()


def picture(colour, x=100, y=80) -> Image:
    bgr = np.full((240, 320, 3), 90, np.uint8)
    bgr[y : y + 40, x : x + 60] = colour
    return Image.from_array(bgr)


def describe(colour, x=100, y=80, box=None):
    return SOURCE.describe(picture(colour, x, y), box or Box(x, y, 60, 40))


def test_a_description_has_length_one():
    assert np.linalg.norm(describe(RED)) == pytest.approx(1)


def test_the_same_thing_elsewhere_is_described_alike_and_another_colour_is_not():
    assert describe(RED) @ describe(RED, 30, 150) == pytest.approx(1, abs=1e-6)
    assert describe(RED) @ describe(GREY) < 0.5


def test_a_little_more_light_changes_little():
    assert describe(RED) @ describe(tuple(int(v * 1.05) for v in RED)) > 0.85


@pytest.mark.parametrize(
    "box", [Box(400, 400, 60, 40), Box(100, 80, 1, 1), Box(100, 80, 0, 40), Box(float("nan"), 0, 9, 9)]
)
def test_a_box_without_pixels_has_no_description(box):
    assert describe(RED, box=box) is None


def test_the_visible_part_of_a_box_at_the_border_counts():
    assert describe(RED, 0, 80, Box(-60, 80, 120, 40)) @ describe(RED) == pytest.approx(1, abs=1e-6)


def test_a_bad_image_has_no_description():
    assert SOURCE.describe(Image(np.zeros((2, 2), np.uint8), 320, 240, "bgr8"), Box(9, 9, 60, 40)) is None
