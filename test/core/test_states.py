"""The state machine of one target: what hits and misses make of the claim."""

import math

import pytest

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.tracker import TargetState
from efftam_ros.core.types import TrackState

FRAME = 33_333_333
IDLE, ACQUIRING, TRACKING, COASTING, LOST = TrackState
LETTERS = dict(zip(TrackState, "IATCL", strict=True))


def play(events: str) -> tuple[str, TargetState]:
    """One letter per frame: s selection, h hit, m miss; the first letters of the states after each frame."""
    target = TargetState(TrackerConfig(lost_after=0.2, acquire_frames=3, reacquire_frames=2))
    states = ""
    for i, event in enumerate(events):
        {"s": target.select, "h": target.hit, "m": target.miss}[event](i * FRAME)
        states += LETTERS[target.state]
    return states, target


@pytest.mark.parametrize(
    ("events", "states"),
    [
        ("shh", "AAT"),  # a selection is confirmed by consistent frames
        ("shhm", "AATC"),  # one miss is coasting, not loss
        ("shhmhh", "AATCAT"),  # a return must be confirmed
        ("shhmhm", "AATCAC"),  # one that does not last is coasting again
        ("shm", "AAC"),  # a miss right after the selection is coasting
        ("shhs", "AATA"),  # re-selection starts over
        ("shh" + "m" * 8, "AAT" + "CCCCCC" + "LL"),  # 0.2 s at 30 images per second
        ("shh" + "m" * 8 + "hmhh", "AAT" + "CCCCCC" + "LL" + "ALAT"),
        # Single unconfirmed hits do not restart the clock: a wrong object seen every other frame would.
        ("shh" + "mh" * 5, "AAT" + "CA" * 3 + "LA" * 2),
    ],
)
def test_sequences(events, states):
    assert play(events)[0] == states


def test_a_target_coasts_until_exactly_lost_after():
    target = TargetState(TrackerConfig(lost_after=1.0))
    target.select(0)
    for stamp_ns, state in ((10**9, COASTING), (10**9 + 1, LOST)):
        target.miss(stamp_ns)
        assert target.state is state


def test_age_counts_from_the_last_accepted_box_and_no_time_of_before_once_stamps_went_back():
    _, target = play("shhhhmm")
    assert target.age_s(6 * FRAME) == pytest.approx(2 * FRAME * 1e-9)
    target.lose(times_valid=False)
    assert math.isnan(target.age_s(6 * FRAME))
    target.hit(FRAME)
    target.miss(2 * FRAME)
    assert target.state is LOST  # not coasting by a claim of later stamps
