"""The judge of disappearances: scripted trackers whose figures can be counted by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.scripted_pipeline import ScriptedPipeline

from efftam_ros.core.geometry import Box
from efftam_ros.core.targets import TargetSet
from efftam_ros.core.types import Candidates, PipelineSpec
from training.disappearance import (
    Claim,
    Disappearance,
    Judgement,
    TrackerFollower,
    Truth,
    Verdict,
    score,
)

FPS = 30.0
FIRST, LAST, BACK = 30, 49, 52  # gone for 20 frames, half of it back three frames later
FRAMES = 100


def at(i: int, size: float = 40.0) -> Box:
    return Box(100.0 + 2 * i, 80.0, size, size)


def look_alike(i: int) -> Box:
    return Box(100.0 + 2 * i, 300.0, 40.0, 40.0)


def share(i: int) -> float:
    if FIRST <= i <= LAST:
        return 0.0
    return {28: 0.7, 29: 0.2, 50: 0.1, 51: 0.4, 52: 0.6}.get(i, 1.0)


def truth(size: float = 40.0) -> list[Truth]:
    return [Truth(at(i, size) if share(i) >= 0.1 else None, at(i, size), share(i)) for i in range(FRAMES)]


ONE = Disappearance(FIRST, LAST, BACK)
ABSENT = 20
PRESENT = FRAMES - 1 - ABSENT - 2  # without the first frame, and those with a share of 0.2 and 0.1


def judged(claim, size: float = 40.0) -> Verdict:
    return score(truth(size), [ONE], FPS, [claim(i) for i in range(FRAMES)], regain_s=0.5)


def perfect(i: int) -> Claim:
    return Claim(at(i), True) if share(i) >= 0.3 else Claim(None, False)


def test_a_perfect_tracker():
    verdict = judged(perfect)
    assert (verdict.present, verdict.claimed_present) == (PRESENT, PRESENT)
    assert (verdict.absent, verdict.claimed_absent) == (ABSENT, 0)
    assert verdict.ao == 1.0
    (one,) = verdict.returns
    assert (one.regained, one.wrong, one.lost_before) == (True, False, False)
    assert one.regained_after_s == 0.0
    assert one.hidden_s == pytest.approx(20 / FPS)
    total = Judgement((verdict,))
    assert (total.balanced_accuracy, total.regained, total.wrong) == (1.0, 1.0, 0.0)


def test_a_tracker_that_never_says_absent_has_half_the_balanced_accuracy():
    """On the hidden target's outline: wrong about its presence, but no other object is taken."""
    verdict = judged(lambda i: Claim(at(i), True))
    assert verdict.claimed_absent == ABSENT
    assert Judgement((verdict,)).balanced_accuracy == 0.5
    assert verdict.returns[0].regained
    assert not verdict.returns[0].wrong


def test_a_tracker_that_stays_where_it_lost_the_target_takes_something_else():
    verdict = judged(lambda i: Claim(at(min(i, FIRST)), True) if i < BACK + 40 else perfect(i))
    (one,) = verdict.returns
    assert (one.regained, one.wrong) == (False, True)


def test_a_tracker_that_goes_to_the_look_alike():
    verdict = judged(lambda i: perfect(i) if i < FIRST else Claim(look_alike(i), True))
    (one,) = verdict.returns
    assert (one.regained, one.wrong, one.lost_before) == (False, True, False)
    assert math.isnan(one.regained_after_s)
    assert verdict.claimed_present == PRESENT  # it says present: that alone does not tell
    overlapping = 28  # frames 1 to 28 with the target; 29 is not counted
    assert verdict.ao == pytest.approx(overlapping / PRESENT)


@pytest.mark.parametrize(("delay", "regained"), [(0, True), (15, True), (16, False)])
def test_half_a_second_is_fifteen_frames(delay, regained):
    def late(i: int) -> Claim:
        return Claim(None, False) if FIRST <= i < BACK + delay else perfect(i)

    verdict = judged(late)
    assert verdict.returns[0].regained is regained
    assert not verdict.returns[0].wrong
    missed = 1 + delay  # frame 51 shows 0.4 of it, frames from 52 on more
    assert verdict.claimed_present == PRESENT - missed
    total = Judgement((verdict,))
    assert total.sensitivity == pytest.approx(1 - missed / PRESENT)
    assert total.balanced_accuracy == pytest.approx(1 - missed / PRESENT / 2)


@pytest.mark.parametrize(("frames", "wrong"), [(2, False), (3, True)])
def test_a_wrong_object_counts_from_three_claims_in_a_row(frames, wrong):
    def strays(i: int) -> Claim:
        return Claim(look_alike(i), True) if 35 <= i < 35 + frames or i == 60 else perfect(i)

    assert judged(strays).returns[0].wrong is wrong


def test_a_tracker_that_lost_the_target_before_is_not_credited_with_its_return():
    verdict = judged(lambda i: Claim(None, False) if 20 <= i <= BACK else perfect(i))
    (one,) = verdict.returns
    assert (one.lost_before, one.regained) == (True, False)
    assert one.regained_after_s == pytest.approx(1 / FPS)
    total = Judgement((verdict,))
    assert (total.lost_before, total.regained) == (1.0, 0.0)


@pytest.mark.parametrize(("size", "regained"), [(12.0, True), (20.0, False)])
def test_boxes_under_16_px_need_less_overlap(size, regained):
    """Off by 0.4 sizes: an IoU of 0.43."""
    verdict = judged(lambda i: Claim(at(i, size).moved(0.4 * size, 0), share(i) >= 0.3), size)
    assert verdict.returns[0].regained is regained


def test_our_tracker_claims_its_selection_but_not_an_unconfirmed_return():
    """ACQUIRING twice, TRACKING, absent, then a return that is confirmed on its third frame."""

    def script(i, view):
        box = np.array([[100, 80, 140, 120]], np.float32)
        return Candidates(
            box, np.array([1600], np.float32), np.array([0.9], np.float32), -4.0 if 5 <= i < 9 else 4.0
        )

    follower = TrackerFollower(TargetSet(ScriptedPipeline(script, PipelineSpec(name="s", image_side=64))))
    picture = np.zeros((240, 320, 3), np.uint8)
    present = [
        follower(picture, round(i * 1e9 / 30), Box(100, 80, 40, 40) if i == 0 else None).present
        for i in range(13)
    ]
    assert present == [True] * 5 + [False] * 4 + [False, False, True, True]
