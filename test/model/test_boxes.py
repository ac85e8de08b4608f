"""Boxes from logits: sub-pixel, border-true, and never silent about broken numbers."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the network needs torch: scripts/setup_env --with-tests")

import math

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from efftam_ros.runtime import preprocess
from efftam_workshop.model.common.layers import boxes_and_areas

SIDE = 16


def ramp(left: float, top: float, right: float, bottom: float) -> torch.Tensor:
    """Logits whose zero level is exactly this box, in mask pixels (edge coordinates)."""
    centre = torch.arange(SIDE) + 0.5
    x, y = centre[None, :].expand(SIDE, SIDE), centre[:, None].expand(SIDE, SIDE)
    return torch.stack([x - left, right - x, y - top, bottom - y]).amin(dim=0)


@given(
    left=st.floats(0.6, 6.9), top=st.floats(0.6, 6.9), width=st.floats(3.1, 8.0), height=st.floats(3.1, 8.0)
)
def test_edges_are_the_zero_crossings_between_pixel_centres(left, top, width, height):
    edges = left, top, left + width, top + height
    boxes, _ = boxes_and_areas(ramp(*edges)[None])
    np.testing.assert_allclose(boxes[0], 4 * np.array(edges), atol=1e-3)


def test_a_mask_that_touches_the_border_ends_on_it():
    boxes, areas = boxes_and_areas(torch.ones(1, SIDE, SIDE))
    assert boxes[0].tolist() == [0.0, 0.0, 4 * SIDE, 4 * SIDE]
    assert areas[0] == 16 * SIDE * SIDE


def test_an_empty_mask_is_four_zeros():
    logits = torch.stack([torch.full((SIDE, SIDE), -1.0), torch.zeros(SIDE, SIDE)])
    boxes, areas = boxes_and_areas(logits)
    assert not boxes.any()
    assert not areas.any()


def test_a_box_reaches_over_all_parts_of_a_mask():
    logits = torch.full((1, SIDE, SIDE), -1.0)
    logits[0, 2, 3] = logits[0, 9, 12] = 1.0
    boxes, areas = boxes_and_areas(logits)
    assert boxes[0].tolist() == [4 * 3.0, 4 * 2.0, 4 * 13.0, 4 * 10.0]
    assert areas[0] == 2 * 16


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_logits_that_are_not_finite_make_the_area_nan(bad):
    logits = torch.full((2, SIDE, SIDE), -1.0)
    logits[0, 5, 5] = bad
    areas = boxes_and_areas(logits)[1]
    assert torch.isnan(areas[0])
    assert areas[1] == 0


@given(
    arrays.arrays(np.float32, (3, 8, 8), elements=st.floats(-20, 20, width=32)), st.floats(-15, 15, width=32)
)
def test_torch_and_numpy_say_the_same(logits, shift):
    boxes, areas = boxes_and_areas(torch.from_numpy(logits + np.float32(shift)))
    expected_boxes, expected_areas = preprocess.boxes_and_areas(logits + np.float32(shift))
    np.testing.assert_allclose(boxes, expected_boxes, atol=1e-4)
    np.testing.assert_array_equal(areas, expected_areas)
