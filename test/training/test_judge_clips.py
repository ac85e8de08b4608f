"""The judge's recipes, and the fit of its models."""

from __future__ import annotations

import numpy as np
import pytest

from efftam_ros.images.video import VideoFrame
from efftam_workshop.eval.sequences import Sequence
from training.judge.clips import _RECIPES, FPS, NS, Clip
from training.judge.logistic import area, calibration_error, evened, fit, found, left_out, reliability

SIZE = (320, 240)


def sequence(boxes: np.ndarray) -> Sequence:
    """Grey images whose pixels have the image's number, with a white target."""

    def frames():
        for number, (x, y, width, height) in enumerate(boxes):
            picture = np.full((SIZE[1], SIZE[0], 3), number % 200, np.uint8)
            if np.isfinite(x):
                picture[round(y) : round(y + height), round(x) : round(x + width)] = 255
            yield VideoFrame(number, round(number * NS / FPS), picture)

    return Sequence("made_up", boxes, frames)


def resting(count: int = 120) -> np.ndarray:
    return np.tile([100.0, 80.0, 24.0, 20.0], (count, 1))


def clip(kind: str, boxes: np.ndarray) -> Clip:
    (one,) = _RECIPES[kind](sequence(boxes), "group", 120)
    return one


def test_a_splice_leaves_out_the_middle_third_and_its_stamps_go_on():
    one = clip("splice", resting())
    shown = list(one)
    numbers = [round(int(image.picture[0, 0, 0])) for image in shown]
    assert numbers == [*range(10, 40), *range(80, 120)]
    assert one.event == 30
    assert shown[30].stamp_ns - shown[29].stamp_ns == pytest.approx(41 * NS / FPS, abs=2)


def test_a_swing_turns_away_from_the_target_and_back_to_where_it_then_is():
    one = clip("swing", resting())
    shown = list(one)
    assert shown[0].picture.shape == (144, 192, 3)
    seen = [image.truth is not None for image in shown]
    assert all([*seen[:20], *seen[one.event :]])
    assert not any(seen[45:55])
    for image in shown:
        if image.truth is not None and image.truth.width == 24:
            box = image.truth
            inside = image.picture[round(box.y) : round(box.y1), round(box.x) : round(box.x1)]
            assert inside.min() == 255


def test_a_small_target_leaves_a_resting_view_by_its_own_motion_and_returns():
    boxes = resting()
    boxes[:, 0] = 100 + 95 * (1 - np.cos(np.arange(120) / 120 * 2 * np.pi))
    one = clip("leave", boxes)
    seen = [image.truth is not None for image in one]
    assert all([seen[0], seen[one.event]])
    assert not all(seen)
    assert len(np.unique(one.corners, axis=0)) == 1
    assert _RECIPES["leave"](sequence(resting()), "group", 120) == []


def test_a_turning_target_is_hidden_for_one_image_where_its_shape_changes_fastest():
    boxes = resting()
    boxes[60:, 2] = 48.0
    one = clip("turning", boxes)
    shown = list(one)
    (hidden,) = [index for index, image in enumerate(shown) if image.truth is None]
    assert hidden == one.hidden == one.event - 1
    assert abs(one.images[hidden] - 60) <= 5
    assert shown[hidden].picture.max() < 255


def test_weights_keep_their_signs_and_the_log_odds_are_calibrated():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 3))
    y = (rng.random(4000) < 1 / (1 + np.exp(-(1.5 * x[:, 0] - 1.0 * x[:, 1] + 0.5)))).astype(float)
    groups = np.arange(4000) % 20
    weights, offset = fit(x, y, np.ones(4000), np.zeros(3), 1.0)
    assert weights == pytest.approx([1.5, -1.0, 0.0], abs=0.15)
    assert offset == pytest.approx(0.5, abs=0.15)
    signed, _ = fit(x, y, np.ones(4000), np.array([1, 1, 0]), 1.0)
    assert signed[0] > 1.0
    assert signed[1] == 0.0
    odds = left_out(x, y, groups, np.zeros(3), evened(groups))
    assert calibration_error(reliability(1 / (1 + np.exp(-odds)), y)) < 0.04
    assert area(odds, y) > 0.8


def test_the_area_and_the_share_found_are_those_of_scores_in_order():
    y = np.array([0.0, 0.0, 1.0, 1.0])
    assert area(np.array([1.0, 2.0, 3.0, 4.0]), y) == 1.0
    assert area(np.array([4.0, 3.0, 2.0, 1.0]), y) == 0.0
    assert found(np.array([1.0, 2.0, 3.0, 4.0]), y, (0.5,)) == [1.0]


def test_footage_with_many_rows_counts_by_their_square_root():
    weight = evened(np.array([0] * 100 + [1]))
    assert weight[:100].sum() / weight[100] == pytest.approx(10.0)
    assert weight.mean() == pytest.approx(1.0)
