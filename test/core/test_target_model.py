"""What is usual of the target: its scores, and what a candidate weighs against them."""

from __future__ import annotations

import pytest
from support.scripted_target import SPEC, candidates

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.geometry import Box
from efftam_ros.core.policies.base import NOT_KNOWN
from efftam_ros.core.policies.constants import RETURN_MARGIN
from efftam_ros.core.policies.default import DefaultPolicy, TargetModel


def known(quality: float = 0.8, area: float = 900.0, logit: float = 4.0) -> TargetModel:
    model = TargetModel()
    for _ in range(10):
        model.add(area, quality, logit, remembered=True)
    return model


@pytest.mark.parametrize(
    ("area", "quality", "logit", "weight"),
    [
        *((900, 0.8, 4, 1.92), (900, 0.8, 9, 1.92), (900, 0.8, -3, -0.39), (900, 0.8, -9, -0.39)),
        *((900, 0.4, 4, 1.12), (900, 0.95, 4, 2.22), (900, 1.0, 4, 2.24)),  # at most 1.2 times usual
        *((1800, 0.8, 4, 1.6913), (450, 0.8, 4, 1.6913)),
        *((3600, 0.8, 4, 0.8929), (225, 0.8, 4, 0.8929)),  # beyond three times it counts seven times
    ],
)
def test_what_a_candidate_weighs_beside_a_target_of_900_px2_with_a_predicted_iou_of_0_8(
    area, quality, logit, weight
):
    model = known()
    for _ in range(20):
        model.add(300.0, 0.8, 4.0, remembered=False)  # hidden in part
    assert model.usual_area == 300.0
    assert model.llr(area, quality, logit) == pytest.approx(weight, abs=1e-4)


def test_a_return_may_weigh_a_little_less_than_confirmed_frames_do_but_never_less_than_nothing():
    model = known(logit=4.0)
    assert model.least_llr == pytest.approx(model.llr(900.0, 0.8, 4.0) - RETURN_MARGIN)
    assert known(logit=0.0).least_llr == 0.0


def test_before_the_target_was_seen_nothing_is_unclear_and_nothing_is_usual():
    model = TargetModel()
    assert 0.7 * model.usual_quality <= 0.01
    assert (model.usual_area, model.least_llr) == (None, 0.0)
    assert known(quality=0.0).llr(900.0, 0.0, 4.0) == pytest.approx(0.32)  # nor infinitely likely


def test_the_usual_area_follows_the_size_of_the_images():
    model = known(area=900.0)
    for _ in range(20):
        model.add(300.0, 0.8, 4.0, remembered=False)
    model.resize(4.0)
    assert model.usual_area == 1200.0
    assert model.llr(3600.0, 0.8, 4.0) == known(area=900.0).llr(900.0, 0.8, 4.0)


def test_of_candidates_that_overlap_the_clearest_is_a_detection():
    box = Box(100, 100, 40, 30)
    shown = candidates(box, box.moved(6, 4), box.moved(200, 0), ious=[0.7, 0.9, 0.6])
    (found,) = DefaultPolicy(SPEC, TrackerConfig()).detections([shown], NOT_KNOWN)
    assert [(one.box.x, one.quality) for one in found] == [
        (106, pytest.approx(0.9)),
        (300, pytest.approx(0.6)),
    ]
