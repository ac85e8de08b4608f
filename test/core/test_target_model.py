"""What is usual of the target: its colours and scores, and what a candidate weighs against them."""

from __future__ import annotations

import numpy as np
import pytest

from efftam_ros.core.policies.target_model import KEPT, LEAST, RETURN_MARGIN, Appearance, TargetModel


def descriptor(*shares: float) -> np.ndarray:
    return np.sqrt(np.array(shares) / sum(shares))


def test_other_colours_are_a_change_and_nothing_is_said_before_the_target_is_known():
    known = Appearance()
    red, blue = descriptor(0.9, 0.1), descriptor(0.1, 0.9)
    assert known.change(blue) == 0
    for _ in range(2 * LEAST):
        known.add(red)
    assert known.change(red) == pytest.approx(0, abs=1e-9)
    assert known.change(blue) > 0.3
    assert known.change(None) == 0


def test_a_target_that_slowly_changes_its_colours_stays_itself_and_may_return_to_the_first():
    known = Appearance()
    for i in range(4 * KEPT):
        share = i / (4 * KEPT)
        now = descriptor(1 - share + 1e-3, share + 1e-3)
        assert known.change(now) < 0.02
        known.add(now)


def known(quality: float = 0.8, area: float = 900.0, llr: float = 2.0) -> TargetModel:
    model = TargetModel()
    for _ in range(10):
        model.add(area, quality, llr, remembered=True)
    return model


def test_a_candidate_weighs_less_the_more_its_area_differs_and_much_less_beyond_three_times():
    model = known()
    weights = [model.llr(900.0 * factor, 0.8, 4.0, None) for factor in (1.0, 2.0, 2.9, 3.1)]
    assert weights == sorted(weights, reverse=True)
    assert weights[2] - weights[3] > 2 * (weights[0] - weights[1]) * np.log(3.1 / 2.9) / np.log(2)
    assert model.llr(None, 0.8, 4.0, None) == weights[0]


def test_a_return_may_weigh_a_little_less_than_confirmed_frames_do_but_never_less_than_nothing():
    assert known(llr=2.0).least_llr == pytest.approx(2.0 - RETURN_MARGIN)
    assert known(llr=0.5).least_llr == 0.0


def test_before_the_target_was_seen_nothing_is_unclear_and_nothing_is_usual():
    model = TargetModel()
    assert 0.7 * model.usual_quality <= 0.01
    assert (model.usual_area, model.least_llr) == (None, 0.0)


def test_the_usual_area_follows_the_size_of_the_images():
    model = known(area=900.0)
    model.resize(4.0)
    assert model.usual_area == 3600.0
    assert model.llr(3600.0, 0.8, 4.0, None) == known(area=900.0).llr(900.0, 0.8, 4.0, None)
