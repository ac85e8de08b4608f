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
from efftam_workshop.model.common.layers import boxes_and_areas, boxes_at_levels

SIDE = 16


def at_levels(logits: torch.Tensor) -> torch.Tensor:
    return boxes_at_levels(logits.amax(dim=1), logits.amax(dim=2))


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


def test_a_level_is_crossed_next_to_the_box_and_ends_at_the_border_with_it():
    """A bar of logits 2 with an arm of -0.5 to the border at its right, and something apart from it."""
    logits = torch.full((1, SIDE, SIDE), -4.0)
    logits[0, 6:10, 4:8] = 2.0
    logits[0, 7, 8:] = -0.5
    logits[0, 14, 0] = -0.5
    outer, box, inner = at_levels(logits)[0]
    assert outer.tolist() == pytest.approx([4 * (3.5 + 0.5), 4 * (5.5 + 0.5), 4.0 * SIDE, 4 * (9.5 + 0.5)])
    assert box.tolist() == pytest.approx(
        [4 * (3.5 + 2 / 3), 4 * (5.5 + 2 / 3), 4 * (7.5 + 0.8), 4 * (9.5 + 1 / 3)]
    )
    assert inner.tolist() == pytest.approx(
        [4 * (3.5 + 5 / 6), 4 * (5.5 + 5 / 6), 4 * (7.5 + 0.4), 4 * (9.5 + 1 / 6)]
    )


def test_an_empty_mask_has_no_box_at_any_level_and_a_faint_one_has_all():
    logits = torch.full((2, SIDE, SIDE), -3.0)
    logits[1, 5:8, 5:8] = 0.2
    empty, faint = at_levels(logits)
    assert empty.tolist() == [[0.0] * 4] * 3
    assert (faint[:, 2:] > faint[:, :2]).all()


@given(arrays.arrays(np.float32, (3, 8, 8), elements=st.floats(-20, 20, width=32)))
def test_the_boxes_of_the_levels_lie_around_and_within_that_of_the_mask(logits):
    outer, boxes, inner = at_levels(torch.from_numpy(logits)).numpy().transpose(1, 0, 2)
    np.testing.assert_array_equal(boxes, boxes_and_areas(torch.from_numpy(logits))[0])
    slack = 1e-4
    assert (outer[:, :2] <= boxes[:, :2] + slack).all()
    assert (outer[:, 2:] >= boxes[:, 2:] - slack).all()
    assert (inner[:, :2] >= boxes[:, :2] - slack).all()
    assert (inner[:, 2:] <= boxes[:, 2:] + slack).all()
    assert np.isfinite(outer).all()
    assert ((outer >= 0) & (outer <= 32)).all()


@given(st.integers(1, 4), st.integers(1, 4))
def test_the_boxes_of_the_levels_move_with_the_mask(right, down):
    rows, columns = np.mgrid[:SIDE, :SIDE]
    disc = (4.0 - np.hypot(rows - 6, columns - 6)).astype(np.float32)[None]
    moved = (4.0 - np.hypot(rows - 6 - down, columns - 6 - right)).astype(np.float32)[None]
    there = at_levels(torch.from_numpy(moved)) - 4 * torch.tensor([right, down, right, down])
    assert torch.allclose(at_levels(torch.from_numpy(disc)), there, atol=1e-4)
