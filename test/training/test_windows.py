"""Where the windows of training clips look: centred on the prompt, then off as predictions are, never beyond
what the tracker would show."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.windows import (
    LARGE_FACTORS,
    WIDEST,
    draw_path,
    inside,
    most_extent,
)

seeds = st.integers(0, 2**32 - 1)


def path(seed: int, frames: int):
    return draw_path(np.random.default_rng(seed), frames)


@settings(max_examples=200, deadline=None)
@given(seed=seeds, frames=st.integers(1, 12))
def test_a_path_has_one_window_per_frame_of_bounded_size(seed, frames):
    drawn = path(seed, frames)
    assert drawn.offset.shape == (frames, 2)
    assert drawn.factor.shape == drawn.elsewhere.shape == (frames,)
    assert (drawn.factor >= 1.6).all()
    assert (drawn.factor <= 1.3 * WIDEST).all()


@settings(max_examples=200, deadline=None)
@given(seed=seeds, frames=st.integers(1, 12))
def test_the_first_frame_looks_at_its_prompt(seed, frames):
    drawn = path(seed, frames)
    assert not drawn.elsewhere[0]
    assert np.abs(drawn.offset[0]).max() < 0.3
    assert drawn.factor[0] < 1.3 * WIDEST


@settings(max_examples=200, deadline=None)
@given(seed=seeds, frames=st.integers(2, 12))
def test_a_prediction_is_off_by_little_more_than_the_target_unless_it_was_lost(seed, frames):
    drawn = path(seed, frames)
    found_again = np.flatnonzero(drawn.elsewhere[:-1] & ~drawn.elsewhere[1:]) + 1
    steady = np.delete(drawn.offset, found_again, axis=0)
    assert np.abs(steady).max() <= 1.2
    assert np.abs(drawn.offset).max() <= 1.6


@settings(max_examples=200, deadline=None)
@given(seed=seeds, frames=st.integers(1, 12))
def test_a_window_looks_elsewhere_once_and_for_a_while(seed, frames):
    lost = path(seed, frames).elsewhere.astype(int)
    assert (np.diff(lost) == 1).sum() <= 1
    if frames <= 2:
        assert not lost.any()


@settings(deadline=None)
@given(
    st.tuples(st.floats(-2000, 2000), st.floats(-2000, 2000)),
    st.floats(1, 700),
    st.tuples(st.integers(16, 600), st.integers(16, 600)),
)
def test_a_window_moved_inside_shows_no_more_of_the_outside_than_it_must(centre, extent, size):
    moved = inside(np.array(centre), extent, size)
    for place, length in zip(moved, size, strict=True):
        low, high = place + 0.5 - extent / 2, place + 0.5 + extent / 2  # edges
        if extent <= length:
            assert low >= -1e-6
            assert high <= length + 1e-6
        else:
            assert low <= 1e-6
            assert high >= length - 1e-6
            assert place == pytest.approx(length / 2 - 0.5)


@settings(deadline=None)
@given(seed=seeds, size=st.floats(5, 900), width=st.integers(100, 800), height=st.integers(100, 800))
def test_the_widest_window_is_about_the_images_short_side_and_wider_for_large_targets(
    seed, size, width, height
):
    short, long = sorted((width, height))
    most = most_extent(np.random.default_rng(seed), size, (width, height))
    assert 0.9 * short <= most <= max(1.2 * short, long)
    if size < 0.9 * short / LARGE_FACTORS[1]:
        assert most <= 1.2 * short
    if LARGE_FACTORS[0] * size > 1.2 * short:
        assert most >= min(LARGE_FACTORS[0] * size, long) - 1e-9
