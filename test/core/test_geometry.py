"""Boxes, views and overlap."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from efftam_ros.core.geometry import Box, View, are_nested, iou

coordinate = st.floats(-2000, 2000)
length = st.floats(0.5, 2000)
boxes = st.builds(Box, coordinate, coordinate, length, length)


@given(boxes, boxes)
def test_iou_is_symmetric_and_between_zero_and_one(a, b):
    assert iou(a, b) == pytest.approx(iou(b, a))
    assert 0 <= iou(a, b) <= 1 + 1e-12


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", range(4))
def test_a_box_that_is_not_finite_is_empty_and_overlaps_nothing(place, number):
    sides = [1.0, 2.0, 30.0, 40.0]
    whole = Box(*sides)
    sides[place] = number
    assert Box(*sides).is_empty
    assert iou(whole, Box(*sides)) == iou(Box(*sides), whole) == 0.0


@given(boxes)
def test_iou_with_itself_is_one_and_with_an_empty_box_zero(a):
    assert iou(a, a) == pytest.approx(1)
    assert iou(a, Box(a.x, a.y, 0, a.height)) == 0


def test_half_overlapping_boxes():
    assert iou(Box(0, 0, 10, 10), Box(5, 0, 10, 10)) == pytest.approx(50 / 150)


@pytest.mark.parametrize("bad", [Box(0, 0, 0, 5), Box(0, 0, 5, -1)])
def test_boxes_that_enclose_nothing_are_empty(bad):
    assert bad.is_empty
    assert not are_nested(bad, Box(0, 0, 9, 9))
    assert not are_nested(Box(0, 0, 9, 9), bad)


@given(boxes, st.floats(1, 2000), st.floats(1, 2000))
def test_clipping_stays_inside_the_image(box, width, height):
    c = box.clipped(width, height)
    assert 0 <= c.x <= c.x1 <= width + 1e-9
    assert 0 <= c.y <= c.y1 <= height + 1e-9


@given(boxes, coordinate, coordinate, st.floats(20, 3000), st.sampled_from([192, 512, 1024]))
def test_a_window_view_maps_there_and_back(box, cx, cy, extent, side):
    view = View.window(cx, cy, extent, side)
    back = view.to_image(view.to_network(box))
    assert back.edges() == pytest.approx(box.edges(), abs=1e-6)
    assert view.to_network(Box.from_centre(cx, cy, extent, extent)).edges() == pytest.approx(
        (0, 0, side, side), abs=1e-6
    )


def test_the_full_view_squeezes_the_whole_image():
    view = View.full(1280, 720, 512)
    assert view.to_network(Box(0, 0, 1280, 720)).edges() == (0, 0, 512, 512)
    assert view.extent == (1280, 720)


def test_only_the_view_of_the_whole_image_is_full():
    assert View.full(1280, 720, 512).is_full(1280, 720)
    assert not View.full(1280, 720, 512).is_full(1280, 721)
    assert not View.window(640, 360, 720, 512).is_full(1280, 720)


def test_the_pixels_of_a_view_are_those_it_touches_and_their_neighbours_in_the_image():
    assert View.window(100, 60, 40.5, 64).pixels(640, 480, margin=0) == (79, 39, 121, 81)
    assert View.window(100, 60, 40.5, 64).pixels(640, 480, margin=3) == (76, 36, 124, 84)
    assert View.window(10, 470, 40, 64).pixels(640, 480, margin=3) == (0, 447, 33, 480)


def test_a_view_beside_the_image_has_no_pixels():
    left, top, right, bottom = View.window(-100, 600, 40, 64).pixels(640, 480, margin=2)
    assert left >= right
    assert top >= bottom


def test_points_map_like_boxes():
    view, box = View.window(300.5, 200.25, 157, 192), Box(250, 190, 40, 22)
    found = view.points_to_network(np.array([[box.x, box.y]], np.float32))[0]
    assert found == pytest.approx(view.to_network(box).edges()[:2], abs=1e-3)
