"""The probability that what is seen is the target: scripted candidates, and the table that ships."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from efftam_ros.core.errors import InputError
from training.judge.model import (
    FEATURES,
    TABLE,
    Evidence,
    Known,
    Place,
    features,
    read_judge,
    track_features,
)

FRAME_S, JUDGE = 1 / 30, read_judge()
CAR = Known(quality=0.8, size=60.0, likeness=0.8, spread=0.06, around=0.35)
SEEN = Evidence(presence_logit=4.0, quality=0.8, size=60.0, likeness=0.8)
FOLLOWED = replace(SEEN, overlap=0.85, points=0.9, continuity=0.9)


def followed(seen: Evidence, known: Known, seconds: float = 0.6, before: float = 0.97) -> float:
    """Confidence in a followed target after it was seen so for a while."""
    evidence = JUDGE.held(before)
    for _ in range(round(seconds / FRAME_S)):
        evidence = JUDGE.continued(evidence, JUDGE.of_candidate(seen, known), FRAME_S)
    return JUDGE.of_followed(evidence, seen, known)


def returned(seen: Evidence, known: Known, images: int = 8, place: float = 0.0, rivals: int = 0) -> float:
    """Confidence in a candidate that is found so in several images, beside others that are as like."""
    evidence = 0.0
    if rivals:
        seen = replace(seen, rival=seen.likeness)
    for _ in range(images):
        evidence = 0.65 * evidence + JUDGE.of_candidate(seen, known)
    return JUDGE.of_tracks([Place(evidence, place)] * (1 + rivals))[0]


def test_what_is_followed_as_always_is_the_target():
    assert followed(FOLLOWED, CAR) > 0.9


def test_a_skater_who_turns_is_still_the_skater():
    """Likeness 0.45 of usually 0.7, in looks that follow each other."""
    skater = replace(CAR, likeness=0.7, spread=0.1, around=0.3)
    assert followed(replace(FOLLOWED, likeness=0.45), skater) > 0.5


def test_a_passer_by_in_the_place_of_the_target_is_not_the_target():
    people = replace(CAR, around=0.55)
    assert followed(replace(FOLLOWED, likeness=0.35, continuity=0.35, points=0.1), people) < 0.5


def test_a_lone_drone_of_twelve_px_is_claimed_soon_and_beside_three_like_it_it_is_not():
    drone = Known(quality=0.7, size=12.0, likeness=0.66, spread=0.06, around=0.4)
    seen = Evidence(presence_logit=4.0, quality=0.7, size=12.0, likeness=0.57)
    assert returned(seen, drone, images=15) > 0.5
    assert returned(seen, replace(drone, around=0.6), images=15, rivals=3) < 0.5


def test_a_car_that_the_network_says_is_absent_weighs_more_the_more_it_is_like_the_target():
    absent = replace(SEEN, presence_logit=math.log(0.01 / 0.99))
    assert returned(replace(absent, likeness=0.85), CAR) > returned(replace(absent, likeness=0.4), CAR) + 0.2


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (FOLLOWED, replace(FOLLOWED, likeness=0.5)),
        (FOLLOWED, replace(FOLLOWED, presence_logit=-3.0)),
        (FOLLOWED, replace(FOLLOWED, quality=0.3)),
        (FOLLOWED, replace(FOLLOWED, size=25.0)),
        (FOLLOWED, replace(FOLLOWED, size=150.0)),
        (SEEN, replace(SEEN, rival=0.9)),
    ],
)
def test_what_speaks_against_a_candidate_never_makes_it_likelier(better: Evidence, worse: Evidence):
    assert JUDGE.of_candidate(better, CAR) > JUDGE.of_candidate(worse, CAR)


def test_a_track_is_likelier_with_more_evidence_and_shares_with_one_that_is_as_likely():
    best = JUDGE.of_tracks([Place(5.0, 0.0)])[0]
    assert best > JUDGE.of_tracks([Place(1.0, 0.0)])[0]
    beside = JUDGE.of_tracks([Place(5.0, 0.0), Place(5.0, 0.0), Place(0.0, -6.0)])
    assert beside[0] == beside[1] < 0.5 < best
    assert beside[2] < 0.1


def test_what_is_not_known_weighs_nothing():
    nothing = Evidence(presence_logit=0.0, quality=math.nan, size=32.0)
    weighed = dict(zip(FEATURES["seen"], features("seen", nothing, Known()), strict=True))
    assert {name: value for name, value in weighed.items() if value} == {"is_mute": 1.0}


@pytest.mark.parametrize("seen", [replace(SEEN, size=0.0), replace(SEEN, size=1e6, presence_logit=1e9)])
def test_extremes_are_weighed_as_numbers(seen: Evidence):
    assert np.isfinite(features("seen", seen, CAR)).all()
    tracks = [Place(1e9, -1e9), Place(-1e9, 0.0)]
    assert np.isfinite(track_features(tracks)).all()
    assert all(0.0 <= one <= 1.0 for one in JUDGE.of_tracks(tracks))


def test_the_mean_over_time_does_not_depend_on_the_rate_of_images():
    fast = slow = JUDGE.held(0.95)
    for _ in range(6):
        fast = JUDGE.continued(fast, -2.0, 0.05)
    for _ in range(3):
        slow = JUDGE.continued(slow, -2.0, 0.1)
    assert fast == pytest.approx(slow)
    assert JUDGE.continued(None, 1.5, 0.1) == 1.5


def test_what_is_followed_from_a_confidence_on_has_that_confidence():
    neutral = Evidence(presence_logit=0.0, quality=0.8, size=32.0)
    assert JUDGE.of_followed(JUDGE.held(0.6), neutral, Known()) == pytest.approx(0.6, abs=0.01)


def test_the_table_that_ships_has_at_most_sixty_numbers():
    table = json.loads(TABLE.read_text())
    assert 1 + sum(1 + len(table[kind]["weights"]) for kind in FEATURES) <= 60


@pytest.mark.parametrize("change", ["no file", "no table", "format", "weights"])
def test_a_file_that_is_not_the_table_is_refused(tmp_path, change: str):
    path, table = tmp_path / "judge.json", json.loads(TABLE.read_text())
    if change == "format":
        table["format"] = 9
    elif change == "weights":
        table["seen"]["weights"].pop("presence")
    if change != "no file":
        path.write_text("[]" if change == "no table" else json.dumps(table))
    with pytest.raises(InputError, match=r"judge\.json"):
        read_judge(path)
