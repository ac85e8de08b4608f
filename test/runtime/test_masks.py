"""Mask logits become boxes, areas, candidates and image masks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from efftam_ros.core.geometry import Box, View
from efftam_ros.core.types import Candidates, Prompt
from efftam_ros.runtime.preprocess import boxes_and_areas, encode_prompt, image_mask


def disc(side: int, x: float, y: float, radius: float) -> np.ndarray:
    """Logits that fall linearly with the distance from (x, y) and cross zero at ``radius``; cells of a
    low-res map."""
    rows, columns = np.mgrid[0:side, 0:side] + 0.5
    return (radius - np.hypot(columns - x, rows - y)).astype(np.float32)


class TestBoxes:
    def test_lie_on_the_zero_crossings_in_network_pixels(self) -> None:
        logits = np.full((1, 8, 8), -1.0, np.float32)
        logits[0, 3, 2:5] = 3.0  # crosses zero a quarter of the way back from +3 to -1: 0.75 from the centre
        boxes, areas = boxes_and_areas(logits)
        assert boxes.tolist() == [[4 * 1.75, 4 * 2.75, 4 * 5.25, 4 * 4.25]]
        assert areas.tolist() == [3 * 16]

    @settings(max_examples=50, deadline=None)
    @given(x=st.floats(12, 36), y=st.floats(12, 36), radius=st.floats(3, 10))
    def test_follow_a_disc_to_a_fraction_of_a_cell(self, x: float, y: float, radius: float) -> None:
        boxes, _ = boxes_and_areas(disc(48, x, y, radius)[None])
        assert boxes[0] / 4 == pytest.approx([x - radius, y - radius, x + radius, y + radius], abs=0.06)

    @pytest.mark.parametrize("value", [1.0, -1.0, np.nan])
    def test_lie_on_the_border_where_the_mask_touches_it_and_are_zeros_without_one(
        self, value: float
    ) -> None:
        boxes, areas = boxes_and_areas(np.full((2, 8, 8), value, np.float32))
        assert boxes.tolist() == 2 * [[0, 0, 32, 32] if value > 0 else [0, 0, 0, 0]]
        assert areas.tolist() == 2 * [32 * 32 if value > 0 else 0]


UNIT = View(0, 0, 1, 1, 8)


def candidates(boxes, areas, ious=(1.0, 1.0), presence=0.0, view=UNIT) -> Candidates:
    arrays = (np.array(values, np.float32) for values in (boxes, areas, ious[: len(boxes)]))
    return Candidates.in_view(view, *arrays, presence)


class TestCandidates:
    def test_are_in_image_pixels(self) -> None:
        found = candidates([[20, 40, 60, 120]], [80], [0.5], 1.5, View(100.0, 50.0, 2.0, 4.0, 192))
        assert found.boxes.tolist() == [[110, 60, 130, 80]]
        assert found.areas.tolist() == [10]
        assert found.presence_logit == 1.5
        assert found.boxes.dtype == found.areas.dtype == found.ious.dtype == np.float32

    def test_do_not_change_when_the_network_s_buffers_do(self) -> None:
        boxes, areas, ious = np.ones((1, 4), np.float32), np.ones(1, np.float32), np.ones(1, np.float32)
        found = Candidates.in_view(UNIT, boxes, areas, ious, 0.0)
        boxes[:], areas[:], ious[:] = 7, 7, 7
        assert found.boxes.max() == found.areas.max() == found.ious.max() == 1

    def test_have_no_box_where_the_mask_is_empty(self) -> None:
        found = candidates(np.zeros((2, 4)), [0, 5])
        assert found.box(0).is_empty
        assert np.isnan(found.boxes[0]).all()
        assert not np.isnan(found.boxes[1]).any()
        assert found.is_finite


@pytest.mark.parametrize(("x", "y"), [(5, 40), (60, 5)])
def test_a_drawn_mask_ends_where_the_image_does(x: float, y: float) -> None:
    view = View.window(x, y, 40, 32)
    shown = encode_prompt(Prompt(mask=np.ones((48, 64), bool)), view, 64, 48).mask[0, 0]
    centres = 40 / 32 * (np.arange(32) + 0.5)
    inside = [
        (first + centres > 0) & (first + centres < size) for first, size in ((view.y, 48), (view.x, 64))
    ]
    assert np.array_equal(shown, np.outer(*inside))


class TestImageMask:
    def test_of_the_full_view_is_bilinear_between_pixel_centres(self) -> None:
        """Written out: sample i of n lies at (i + 0.5) * L / n - 0.5 low-resolution pixels, clamped to the
        map."""
        logits = np.random.default_rng(0).normal(size=(48, 48)).astype(np.float32)
        weights = []
        for size in (90, 160):
            at = np.clip((np.arange(size) + 0.5) * 48 / size - 0.5, 0, 47)
            weights.append(np.maximum(0, 1 - np.abs(at[:, None] - np.arange(48))))
        smooth = weights[0] @ logits @ weights[1].T
        mask = image_mask(logits, View.full(160, 90, 192), 160, 90)
        clear = np.abs(smooth) > 1e-4
        assert np.array_equal((mask > 0)[clear], (smooth > 0)[clear])
        assert mask.dtype == np.uint8
        assert set(np.unique(mask)) == {0, 255}

    @settings(max_examples=40, deadline=None)
    @given(x=st.floats(-40, 180), y=st.floats(-40, 130), extent=st.floats(20, 400))
    def test_of_a_window_lies_where_the_view_shows_it(self, x: float, y: float, extent: float) -> None:
        view = View.window(x, y, extent, 192)
        mask = image_mask(disc(48, 20.0, 28.0, 12.0), view, 160, 100) > 0
        centre = view.to_image(Box(80.0, 112.0, 0, 0))
        rows, columns = np.mgrid[0:100, 0:160] + 0.5
        distance = np.hypot(columns - centre.x, rows - centre.y) - 48.0 / view.scale_x
        near = 0.7 / view.scale_x + 0.02  # the facets of bilinear interpolation
        assert mask[distance < -near].all()
        assert not mask[distance > near].any()

    @pytest.mark.parametrize(("scale_x", "scale_y"), [(1.0, 2.0), (2.0, 1.0), (1.5, 0.75)])
    def test_of_a_squeezed_view_is_stretched_back_by_each_axis(self, scale_x: float, scale_y: float) -> None:
        view = View(10.0, 5.0, scale_x, scale_y, 192)
        mask = image_mask(disc(48, 16.0, 20.0, 8.0), view, 320, 320) > 0
        columns, rows = mask.any(axis=0).nonzero()[0], mask.any(axis=1).nonzero()[0]
        centre = view.to_image(Box(64.0, 80.0, 0, 0))
        edges = (columns[0], columns[-1] + 1, rows[0], rows[-1] + 1)
        width, height = 32 / scale_x, 32 / scale_y
        expected = (centre.x - width, centre.x + width, centre.y - height, centre.y + height)
        assert edges == pytest.approx(expected, abs=1.2)

    def test_is_empty_outside_the_view_and_where_a_logit_is_no_number(self) -> None:
        ones, window = np.ones((48, 48), np.float32), View.window(50, 40, 20, 192)
        for view, shown in (
            (window, np.s_[30:50, 40:60]),
            (View(10.0, 20.0, 9.6, 4.8, 192), np.s_[20:60, 10:30]),
        ):
            mask = image_mask(ones, view, 160, 100)
            assert np.count_nonzero(mask) == np.count_nonzero(mask[shown]) == mask[shown].size
        assert not image_mask(ones, View.window(500, 500, 20, 192), 160, 100).any()
        for view in (window, View.full(160, 100, 192)):
            assert not image_mask(np.nan * ones, view, 160, 100).any()
