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
