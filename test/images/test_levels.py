"""16-bit pixels become 8 bits: by percentiles smoothed over time, or a fixed range."""

from __future__ import annotations

import numpy as np
import pytest

from efftam_ros.core.errors import InputError
from efftam_ros.core.types import Image
from efftam_ros.images.levels import Levels, few_levels

S = 1_000_000_000


def thermal(low: float, high: float) -> np.ndarray:
    """A 16-bit image that uses the levels from low to high evenly."""
    return np.linspace(low, high, 120 * 160).reshape(120, 160).astype(np.uint16)


def test_a_narrow_range_fills_the_8_bits_with_room_on_both_sides() -> None:
    levels = Levels()
    assert levels.text == ""
    grey = levels.reduced(thermal(7500, 8100), S)
    assert grey.dtype == np.uint8
    assert int(grey[0, 0]) == pytest.approx(21, abs=3)
    assert int(grey[-1, -1]) == pytest.approx(234, abs=3)
    assert levels.reduced(grey, S) is grey  # of 8 bits already


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (7500, 8100, "7443 to 8157"),  # half a per cent darker and brighter, and a tenth more on both sides
        (7800, 7800, "7792 to 7808"),  # noise is not stretched
        (7800, 7810, "7797 to 7813"),
        (0, 600, "0 to 656"),
        (65000, 65535, "64949 to 65535"),
        (0, 0, "0 to 16"),
    ],
)
def test_the_range_is_that_of_the_scene_within_16_bits(low: int, high: int, text: str) -> None:
    levels = Levels()
    levels.reduced(thermal(low, high), S)
    found = [int(number) for number in levels.text.split(" to ")]
    assert found == pytest.approx([int(number) for number in text.split(" to ")], abs=1)


def test_a_few_hot_or_dead_pixels_change_nothing() -> None:
    image = thermal(7500, 8100)
    image[3, :9], image[50, :9] = 65535, 0
    levels, clean = Levels(), Levels()
    levels.reduced(image, S)
    clean.reduced(thermal(7500, 8100), S)
    assert levels.text == clean.text


def test_a_small_hot_target_keeps_its_shape() -> None:
    image = thermal(7500, 8100)
    image[40:50, 40:50] = 8140  # half a per cent, hotter than all else
    grey = Levels().reduced(image, S)
    assert 230 < grey[45, 45] < 255


def test_a_shutter_image_moves_the_range_little_and_the_scene_comes_back() -> None:
    levels = Levels()
    before = levels.reduced(thermal(7500, 8100), S)
    for i in range(15):  # half a second of one level
        levels.reduced(np.full((120, 160), 7800, np.uint16), S + i * S // 30)
    after = levels.reduced(thermal(7500, 8100), S + S // 2 + S // 30)
    assert np.abs(after.astype(int) - before).max() < 15


def test_a_hot_object_that_enters_does_not_darken_the_rest_at_once() -> None:
    levels, hot = Levels(), thermal(7500, 8100)
    hot[:20, :20] = 12000  # 2 % of the image
    before = levels.reduced(thermal(7500, 8100), S).astype(int)
    first = levels.reduced(hot, S + S // 30).astype(int)
    assert 0 < (before - first)[60:].max() < 80
    assert (before - levels.reduced(hot, 4 * S))[60:].max() > 100


def test_a_wider_range_is_followed_within_seconds() -> None:
    levels = Levels()
    levels.reduced(thermal(7500, 8100), S)
    for i in range(1, 61):
        levels.reduced(thermal(7500, 9000), S + i * S // 30)
    assert levels.reduced(thermal(7500, 9000), 3 * S + 1)[-1, -1] < 255


@pytest.mark.parametrize(("step_ns", "like_ns"), [(-S // 30, S // 30), (-1000 * S, S), (1000 * S, S)])
def test_stamps_that_go_back_or_far_on_move_the_range_as_a_second_does_at_most(step_ns, like_ns) -> None:
    levels, like = Levels(), Levels()
    for one, stamp_ns in ((levels, step_ns), (like, like_ns)):
        one.reduced(thermal(7500, 8100), 5000 * S)
        one.reduced(thermal(7500, 12000), 5000 * S + stamp_ns)
    assert levels.text == like.text


def test_a_fixed_range_stays() -> None:
    levels = Levels("7000,9000")
    grey = levels.reduced(thermal(6000, 10000), S)
    assert (grey[0, 0], grey[-1, -1], levels.text) == (0, 255, "7000 to 9000 (fixed)")
    assert levels.reduced(np.full((4, 4), 8000, np.uint16), 2 * S)[0, 0].item() == pytest.approx(127.5, abs=1)


@pytest.mark.parametrize("text", ["", "5", "5,4", "-1,5", "0,70000", "a,b", "1,2,3"])
def test_a_range_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="give auto, or LOW,HIGH"):
        Levels(text)


@pytest.mark.parametrize(("count", "is_few"), [(1, True), (3, True), (40, False)])
@pytest.mark.parametrize("height", [40, 120])
def test_images_with_few_grey_levels_are_told(count: int, is_few: bool, height: int) -> None:
    """Three levels are what is left of a thermal image that was divided by 256."""
    grey = (29 + np.arange(height * 160) % count).astype(np.uint8).reshape(height, 160)
    said = few_levels(Image(grey, 160, height, "mono8"))
    assert (f"only {count} grey levels" in said) == is_few
    assert bool(said) == is_few
