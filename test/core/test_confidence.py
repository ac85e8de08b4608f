"""The confidence in a claim: a probability by looks and size, and the limit that the user may set."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from support.scripted_looks import ScriptedLooks
from support.scripted_pipeline import ScriptedPipeline
from support.scripted_target import one_target

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.gallery import ASKED_NS, SURE
from efftam_ros.core.geometry import Box, View
from efftam_ros.core.policies.constants import CLAIM_AREA, CLAIM_DEFICIT, CLAIM_LOG_ODDS
from efftam_ros.core.policies.default import TargetModel
from efftam_ros.core.reasons import ReasonCode
from efftam_ros.core.types import Candidates, Frame, Image, PipelineSpec, Prompt, Track, TrackState
from simulation.null_pipeline import certain_candidate

SECOND, FPS = 1_000_000_000, 30
APART = -(-ASKED_NS * FPS // SECOND)  # images between two looks
SPEC = PipelineSpec(name="scripted", image_side=192, default_view="window")
PICTURE = Image.from_array(np.zeros((240, 640, 3), np.uint8))
DRAWN = Box.from_centre(100, 100, 30, 30)
USUAL = 0.9


def sigmoid(log_odds: float) -> float:
    return 1 / (1 + math.exp(-log_odds))


AS_USUAL = pytest.approx(sigmoid(CLAIM_LOG_ODDS), abs=0.01)


def run(
    likeness: Callable[[int], float] | None,
    least: float = 0.0,
    images: int = 90,
    seen: Callable[[int], bool] = lambda i: True,
    growth: Callable[[int], float] = lambda i: 1.0,
) -> list[Track]:
    """Follow a target at rest for three seconds.

    ``likeness(i)``: likeness of what is in image i, None: no identity network; ``seen(i)``: whether
    the network sees the target; ``growth(i)``: factor on its sides.
    """
    now = [0]

    def script(index: int, view: View) -> Candidates:
        side = 30 * growth(now[0])
        found = certain_candidate(Box.from_centre(100, 100, side, side))
        return found if seen(now[0]) else replace(found, presence_logit=-10.0)

    describe = None if likeness is None else ScriptedLooks(lambda box: likeness(now[0]) if now[0] else 1.0)
    config = TrackerConfig(least_confidence=least)
    tracker = one_target(ScriptedPipeline(script, SPEC), config, describe=describe)
    tracks = []
    for now[0] in range(images):
        prompt = Prompt(box=DRAWN) if now[0] == 0 else None
        tracks.append(tracker.step(Frame(PICTURE, now[0] * SECOND // FPS), prompt))
        tracker.remember()
    return tracks


def test_a_target_that_looks_as_usual_is_claimed_with_the_usual_confidence():
    tracks = run(lambda i: USUAL)
    assert [track.confidence for track in tracks[1:]] == [AS_USUAL] * (len(tracks) - 1)


def test_before_the_selected_crop_is_described_the_confidence_is_not_known():
    assert math.isnan(run(lambda i: USUAL)[0].confidence)
    assert all(math.isnan(track.confidence) for track in run(None))


def test_confidence_falls_by_what_is_missing_of_the_usual_likeness_within_one_look():
    missing = 0.3
    tracks = run(lambda i: USUAL if i < 60 else USUAL - missing)
    fallen = pytest.approx(sigmoid(CLAIM_LOG_ODDS - CLAIM_DEFICIT * missing), abs=0.01)
    assert tracks[59].confidence == AS_USUAL
    assert tracks[60 + APART + 1].confidence == fallen


def test_of_a_target_without_a_usual_likeness_the_limit_of_what_is_learnt_counts_as_usual():
    """Such as a target whose selected crop was poor."""
    tracks = run(lambda i: SURE - 0.05)
    assert tracks[-1].confidence == pytest.approx(sigmoid(CLAIM_LOG_ODDS - CLAIM_DEFICIT * 0.05), abs=0.01)


def test_confidence_falls_as_the_area_leaves_the_usual_one_in_either_direction():
    model = TargetModel()
    assert model.confidence(400.0, 0.0) == AS_USUAL  # no usual area yet
    model.add(400.0, 0.9, 4.0, remembered=True)
    e_times = sigmoid(CLAIM_LOG_ODDS - CLAIM_AREA)
    assert model.confidence(400.0 * math.e, 0.0) == pytest.approx(e_times)
    assert model.confidence(400.0 / math.e, 0.0) == pytest.approx(e_times)
    tracks = run(lambda i: USUAL, growth=lambda i: 1.0 if i < 60 else 1.3)
    assert tracks[61].confidence < tracks[59].confidence


def test_what_is_not_measured_has_no_confidence():
    tracks = run(lambda i: USUAL, seen=lambda i: not 30 <= i < 40)
    missed = [track for track in tracks if not track.measured]
    assert len(missed) >= 10
    assert all(math.isnan(track.confidence) for track in missed)
    assert tracks[-1].confidence == AS_USUAL


def test_the_image_of_a_return_has_the_confidence_of_what_is_seen_in_it():
    """And not that of the look before the target was missed."""
    tracks = run(lambda i: USUAL if i < 30 else USUAL - 0.1, seen=lambda i: not 30 <= i < 40)
    first = next(track for track in tracks[40:] if track.measured)
    assert first.confidence == pytest.approx(sigmoid(CLAIM_LOG_ODDS - CLAIM_DEFICIT * 0.1), abs=0.01)


# ---- least_confidence --------------------------------------------------------------------------------------


def test_a_claim_below_the_limit_counts_as_missed_with_both_numbers_in_the_reason():
    tracks = run(lambda i: USUAL if i < 60 else USUAL - 0.3, least=0.9)
    missed = next(track for track in tracks if not track.measured)
    assert 60 * SECOND // FPS < missed.stamp_ns <= (60 + APART + 1) * SECOND // FPS
    assert missed.state is TrackState.COASTING
    confidence = sigmoid(CLAIM_LOG_ODDS - CLAIM_DEFICIT * 0.3)
    assert missed.reason.code is ReasonCode.NOT_CONFIDENT
    assert f"{confidence:.2f}" in missed.reason
    assert "0.9" in missed.reason


def test_the_target_is_claimed_again_once_it_looks_as_before():
    tracks = run(lambda i: USUAL - 0.3 if 40 <= i < 60 else USUAL, least=0.9)
    assert not any(track.measured for track in tracks[40 + APART + 1 : 60])
    assert tracks[-1].state is TrackState.TRACKING


def test_without_a_limit_the_same_target_stays_claimed():
    assert all(track.measured for track in run(lambda i: USUAL if i < 60 else USUAL - 0.3, images=70))


def test_the_limit_refuses_a_return_too():
    absent = lambda i: not 30 <= i < 40  # noqa: E731
    likeness = lambda i: USUAL if i < 30 else USUAL - 0.08  # noqa: E731
    assert run(likeness, seen=absent)[-1].state is TrackState.TRACKING
    refused = run(likeness, least=0.975, seen=absent)
    assert not any(track.measured for track in refused[40:])
    assert refused[-1].reason.code is ReasonCode.NOT_CONFIDENT


def test_without_the_identity_network_the_limit_refuses_nothing():
    assert all(track.measured for track in run(None, least=1.0))
