"""A selected box that shows nothing is recognised."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from efftam_ros.core.geometry import Box
from efftam_ros.core.types import Image
from efftam_ros.images.blank import is_blank

WIDTH, HEIGHT = 640, 360
COARSE = np.random.default_rng(0).integers(0, 255, (HEIGHT // 6 + 1, WIDTH // 6 + 1, 3), np.uint8)
GROUND = cv2.resize(COARSE, (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC)


@pytest.mark.parametrize(
    ("plain", "is_plain"),
    [((140, 80, 320, 200), True), ((144, 80, 316, 200), False), ((140, 84, 320, 196), False)],
)
def test_a_target_of_one_shade_is_blank_only_where_all_is_up_to_three_times_its_size(plain, is_plain):
    picture, (left, top, right, bottom) = GROUND.copy(), plain
    picture[top:bottom, left:right] = 90
    assert is_blank(Image.from_array(picture), Box(200, 120, 60, 40)) is is_plain


def test_a_bad_image_is_not_called_blank():
    assert not is_blank(Image(GROUND[:2], WIDTH, HEIGHT, "bgr8"), Box(200, 120, 60, 40))
