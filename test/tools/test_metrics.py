"""Scores against numbers worked out by hand and against a slow, independent implementation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from efftam_ros.core.geometry import Box, iou
from efftam_workshop.eval.metrics import Scores, identities, mask_overlap, mean_scores, score

NAN = [math.nan] * 4


def test_numbers_by_hand():
    """Boxes of 10 x 10 px; frame 0 is given, frame 3 has no truth, frame 4 no answer."""
    truth = np.array([[0, 0, 10, 10], [0, 0, 10, 10], [0, 0, 10, 10], NAN, [0, 0, 10, 10]], float)
    predicted = np.array([[50, 50, 9, 9], [5, 0, 10, 10], [30, 0, 10, 10], [0, 0, 10, 10], NAN], float)
    result = score(truth, predicted)
    assert result.frames == 3
    assert result.ao == pytest.approx((1 / 3 + 0 + 0) / 3)
    # 1/3 is above the seven thresholds 0, 0.05, ..., 0.3; 0 is above none.
    assert result.auc == pytest.approx(7 / 21 / 3)
    assert result.sr50 == 0
    assert result.precision == pytest.approx(1 / 3)  # errors 5 px, 30 px, infinite
    assert result.norm_precision == pytest.approx(1 / 51 / 3)  # 5/10 is up to the last threshold alone
    assert result.false_claims == pytest.approx(2 / 4)  # frame 2 misses the target, frame 3 has none


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


numbers = st.floats(-50, 50, allow_nan=False).map(lambda v: round(v, 2))
sides = st.floats(0.5, 60, allow_nan=False).map(lambda v: round(v, 2))
boxes = st.one_of(st.tuples(numbers, numbers, sides, sides).map(list), st.just(NAN))


def reference(truth: list[list[float]], predicted: list[list[float]]) -> dict[str, float]:
    """The same scores frame by frame and threshold by threshold, written from their definitions."""
    scored = [(t, p) for t, p in list(zip(truth, predicted, strict=True))[1:] if not math.isnan(t[0])]
    ious, errors, normalised = [], [], []
    for t, p in scored:
        if math.isnan(p[0]):
            ious.append(0.0)
            errors.append(math.inf)
            normalised.append(math.inf)
            continue
        a, b = Box(*t), Box(*p)
        ious.append(iou(a, b))
        errors.append(math.hypot(a.cx - b.cx, a.cy - b.cy))
        normalised.append(math.hypot((a.cx - b.cx) / a.width, (a.cy - b.cy) / a.height))
    count = len(scored)
    return {
        "ao": sum(ious) / count,
        "auc": sum(sum(v > k / 20 for v in ious) / count for k in range(21)) / 21,
        "sr50": sum(v > 0.5 for v in ious) / count,
        "precision": sum(e <= 20 for e in errors) / count,
        "norm_precision": sum(sum(e <= k / 100 for e in normalised) / count for k in range(51)) / 51,
    }


@given(st.lists(st.tuples(boxes, boxes), min_size=2, max_size=12))
def test_scores_equal_the_independent_implementation(pairs):
    truth, predicted = [t for t, _ in pairs], [p for _, p in pairs]
    if all(math.isnan(t[0]) for t in truth[1:]):
        return
    result = score(np.array(truth), np.array(predicted))
    for name, value in reference(truth, predicted).items():
        # A value that lies on a threshold may fall to either side of it by rounding.
        tolerance = 1e-9 if name == "ao" else 1 / 21 + 1e-9
        assert getattr(result, name) == pytest.approx(value, abs=tolerance), name
