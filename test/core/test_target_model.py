"""What is usual of the target: its scores, and what a candidate weighs against them."""

from __future__ import annotations

import numpy as np
import pytest

from efftam_ros.core.policies.default import RETURN_MARGIN, TargetModel


def known(quality: float = 0.8, area: float = 900.0, logit: float = 4.0) -> TargetModel:
    model = TargetModel()
    for _ in range(10):
        model.add(area, quality, logit, remembered=True)
    return model


def test_a_candidate_weighs_less_the_less_it_is_like_the_target_up_to_a_half():
    weights = [known().llr(900.0, 0.8, 4.0, deficit) for deficit in (0.0, 0.1, 0.4, 0.5, 0.8)]
    assert weights[0] > weights[1] > weights[2] > weights[3] == weights[4]


def test_a_candidate_weighs_less_the_more_its_area_differs_and_much_less_beyond_three_times():
    model = known()
    weights = [model.llr(900.0 * factor, 0.8, 4.0, 0.0) for factor in (1.0, 2.0, 2.9, 3.1)]
    assert weights == sorted(weights, reverse=True)
    assert weights[2] - weights[3] > 2 * (weights[0] - weights[1]) * np.log(3.1 / 2.9) / np.log(2)
    assert model.llr(None, 0.8, 4.0, 0.0) == weights[0]


def test_a_return_may_weigh_a_little_less_than_confirmed_frames_do_but_never_less_than_nothing():
    model = known(logit=4.0)
    assert model.least_llr == pytest.approx(model.llr(900.0, 0.8, 4.0, 0.0) - RETURN_MARGIN)
    assert known(logit=0.0).least_llr == 0.0


def test_before_the_target_was_seen_nothing_is_unclear_and_nothing_is_usual():
    model = TargetModel()
    assert 0.7 * model.usual_quality <= 0.01
    assert (model.usual_area, model.least_llr) == (None, 0.0)


def test_the_usual_area_follows_the_size_of_the_images():
    model = known(area=900.0)
    model.resize(4.0)
    assert model.usual_area == 3600.0
    assert model.llr(3600.0, 0.8, 4.0, 0.0) == known(area=900.0).llr(900.0, 0.8, 4.0, 0.0)
