"""Scores against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from efftam_workshop.eval.metrics import Scores, identities, mask_overlap, mean_scores, score

NAN = [math.nan] * 4


def test_numbers_by_hand():
    """Boxes of 10 x 20 px; frame 0 is given, frame 3 has no truth, frame 4 no answer, frame 5 is exact."""
    here = [0, 0, 10, 20]
    truth = np.array([here, here, here, NAN, here, here], float)
    predicted = np.array([[50, 50, 9, 9], [3, 8, 10, 20], [30, 0, 10, 20], here, NAN, here], float)
    result = score(truth, predicted)
    assert result.frames == 4
    overlap = (
        7 * 12 / (2 * 200 - 7 * 12)
    )  # 0.27, above the six thresholds 0, 0.05, ..., 0.25; 0 is above none
    assert result.ao == pytest.approx((overlap + 0 + 0 + 1) / 4)
    assert result.auc == pytest.approx((6 + 20) / 21 / 4)  # 1 is not above itself
    assert result.sr50 == 1 / 4
    assert result.precision == pytest.approx(2 / 4)  # errors 8.5 px, 30 px, infinite, 0
    assert result.norm_precision == pytest.approx((1 + 51) / 51 / 4)  # 0.5 is up to the last threshold alone
    assert result.false_claims == pytest.approx(2 / 5)  # frame 2 misses the target, frame 3 has none


def test_a_prediction_is_not_a_claim():
    """A coasting tracker that says so is wrong, but not falsely sure."""
    truth = np.array([[0, 0, 10, 10]] * 3, float)
    far = truth + [100, 0, 0, 0]
    assert score(truth, far).false_claims == 1
    assert score(truth, far, claimed=np.array([True, False, False])).false_claims == 0
    assert score(truth, far, claimed=np.array([True, False, False])).ao == 0


def test_nothing_to_score_is_an_error():
    with pytest.raises(ValueError, match="no frame after the first"):
        score(np.array([[0, 0, 1, 1], NAN]), np.array([[0, 0, 1, 1], NAN]))


def test_mask_overlap_counts_pixels():
    a = np.zeros((4, 4), bool)
    b = a.copy()
    a[:2], b[1:3] = True, True
    assert mask_overlap(a, b) == pytest.approx(4 / 12)
    assert mask_overlap(a, np.zeros_like(a)) == 0
    assert mask_overlap(np.zeros_like(a), np.zeros_like(a)) == 0


def track(*places: float) -> list[list[float]]:
    """A box of 10 x 10 px at these positions along x; NaN: none."""
    return [NAN if math.isnan(x) else [x, 0, 10, 10] for x in places]


HERE, THERE, NOWHERE = 0.0, 40.0, math.nan
APART = np.array([track(HERE, HERE, HERE, HERE), track(THERE, THERE, THERE, THERE)])


@pytest.mark.parametrize(
    ("first", "second", "switches", "another"),
    [
        ([HERE, HERE, HERE, HERE], [THERE, THERE, THERE, THERE], 0, 0),
        ([HERE, HERE, THERE, THERE], [THERE, THERE, HERE, HERE], 2, 2),  # exchanged
        ([HERE, THERE, THERE, THERE], [THERE, HERE, HERE, THERE], 2, 1),  # the second one came back
        ([HERE, THERE, THERE, THERE], [THERE, THERE, THERE, THERE], 0, 1),  # both on one: no object changes
        ([HERE, THERE, THERE, THERE], [THERE, NOWHERE, NOWHERE, NOWHERE], 1, 1),
        ([HERE, NOWHERE, NOWHERE, HERE], [THERE, 36.0, 44.0, 46.0], 0, 0),  # 46: overlap 0.25
    ],
)
def test_id_switches_by_hand(first, second, switches, another):
    assert identities(APART, np.array([track(*first), track(*second)])) == (2, switches, another)


def test_of_two_boxes_on_an_object_the_one_that_was_there_keeps_it():
    """The other one lies closer."""
    answers = np.array([track(HERE, 2.0, 2.0, 2.0), track(THERE, HERE, HERE, HERE)])
    assert identities(APART, answers) == (2, 0, 1)


def test_means_leave_out_what_is_unknown():
    one = Scores(0.5, 0.4, 0.3, 0.2, 0.1, math.nan, 0.0, 10)
    two = Scores(0.7, 0.6, 0.5, 0.4, 0.3, 0.8, 0.1, 20)
    mean = mean_scores([one, two])
    assert (mean.ao, mean.j, mean.frames) == (pytest.approx(0.6), 0.8, 30)
