"""What is owed to a gimbal that was moved: the rule alone, for any autopilot, gimbal and moment."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from efftam_flight.mavlink.gimbal_rates import GimbalRates
from efftam_flight.mavlink.standstill import Standstill, resembles
from efftam_flight.mavlink.zero_debt import MANAGERS, Debt, Due, Manager, Situation
from efftam_flight.values import NS, STOPPED, AttitudeSample, Rates, VehicleSample, YawFrame
from simulation.rotations import from_yaw_pitch

NOW_S = 100.0
ARDUPILOT, PX4 = MANAGERS.values()
OURS = Rates(0.0, 0.2)


def seen_turning(yaw_rate: float, until_s: float = NOW_S) -> Standstill:
    """A gimbal whose attitude comes at 50 Hz for the second before, standing where the rate is 0; it looks
    backwards, where its yaw goes from pi to -pi."""
    return seen_from(YawFrame.EARTH, yaw_rate, None, until_s)


def seen_from(frame: YawFrame, yaw_rate: float, turn: float | None, until_s: float = NOW_S) -> Standstill:
    """``yaw_rate``: in that frame; ``turn``: the vehicle's, None where no heading comes."""
    seen = Standstill()
    for i in range(51):
        t = until_s - 1.0 + 0.02 * i
        if turn is not None:
            seen.turned(VehicleSample(round(t * NS), turn * (t - NOW_S + 0.25) + math.pi, turn))
        q = from_yaw_pitch(yaw_rate * (t - NOW_S + 0.25) + math.pi, 0.0)
        seen.take(AttitudeSample(round(t * NS), q, frame), t)
    return seen


managers = st.sampled_from([ARDUPILOT, PX4, Manager()])
situations = st.builds(
    Situation, managers, st.booleans(), st.booleans(), st.sampled_from([1.0, 11.9, 12.1, math.inf])
)
# Of the past, of the last half second, or not yet.
moments = st.sampled_from([NOW_S - 0.9, NOW_S - 0.6, NOW_S - 0.3, math.inf])
debts = st.builds(
    Debt,
    st.just(OURS),
    st.sampled_from([NOW_S - 0.9, NOW_S - 0.6, NOW_S - 0.3]),
    st.sampled_from([None, (0.0, 0.2, 0.2), (0.0, -0.5, -0.5)]),
    moments,
    st.booleans(),
)
turning = st.sampled_from([0.0, 0.05, 0.2, -0.5, 0.6])
# 0.46 s ago: what is left of the last half second is too short to tell that it stands.
heard = st.sampled_from([NOW_S, NOW_S - 0.3, NOW_S - 0.46, NOW_S - 0.7])


@given(debts, situations, turning, heard)
def test_only_a_gimbal_that_stands_pays_and_only_one_that_is_driven_or_was_told(debt, at, rate, heard_s):
    seen = seen_turning(rate, heard_s)
    if debt.due(at, seen, NOW_S) is Due.PAID:
        assert rate == 0.0
        assert NOW_S - heard_s <= 0.6
        assert at.boot_s >= at.manager.wakes_s
        since_s = debt.zeros_s if debt.turned is None else debt.ended_s
        assert since_s <= NOW_S - 0.5


@given(debts, situations, turning, heard)
def test_where_the_manager_gates_zeros_go_out_exactly_while_we_are_in_control(debt, at, rate, heard_s):
    at = at._replace(manager=PX4)
    due = debt.due(at, seen_turning(rate, heard_s), NOW_S)
    assert due in ((Due.ZERO, Due.PAID) if at.in_control else (Due.LEFT, Due.PAID))


@given(debts, situations, turning, heard)
def test_where_it_does_not_gate_only_somebody_known_keeps_a_zero_back(debt, at, rate, heard_s):
    at = at._replace(manager=ARDUPILOT)
    due = debt.due(at, seen_turning(rate, heard_s), NOW_S)
    if due in (Due.LOOK, Due.LEFT):
        assert debt.is_contested or at.another
        assert at.boot_s >= ARDUPILOT.wakes_s
    if due is Due.LEFT:
        assert rate not in (0.0, OURS.yaw)
        assert debt.turned is None or rate != debt.turned[1]


@pytest.mark.parametrize(
    ("rate", "turned", "due"),
    [
        (0.2, None, Due.ZERO),  # as we asked
        (0.29, None, Due.ZERO),  # within half of it
        (0.31, None, Due.LEFT),
        (-0.2, None, Due.LEFT),
        (-0.2, (0.0, -0.2, -0.2), Due.ZERO),  # as it turned while we moved it
        (0.0, None, Due.ZERO),  # stands, perhaps as nothing drives it
        (0.0, (0.0, 0.2, 0.2), Due.PAID),
    ],
)
def test_who_moves_it_after_anothers_word_is_told_by_its_attitude(rate, turned, due):
    seen, another = seen_turning(rate), Situation(ARDUPILOT, another=True)
    contested, told = Debt(OURS, NOW_S - 0.8, turned, is_contested=True), Debt(OURS, NOW_S - 0.8, turned)
    assert contested.due(Situation(ARDUPILOT), seen, NOW_S) is told.due(another, seen, NOW_S) is due
    # Soon after a word it is waited for what it does; where only the manager names another, it is stopped.
    assert replace(contested, ended_s=NOW_S - 0.3).due(Situation(ARDUPILOT), seen, NOW_S) is Due.LOOK
    assert replace(told, ended_s=NOW_S - 0.3).due(another, seen, NOW_S) is Due.ZERO


def test_a_gimbal_that_turns_by_a_rate_from_before_a_cut_is_ours():
    debt = Debt(OURS, NOW_S - 0.8, is_contested=True)
    assert debt.due(Situation(ARDUPILOT), seen_turning(-0.2), NOW_S) is Due.LEFT
    before = replace(debt, earlier=(Rates(0.0, 0.1), Rates(0.0, -0.2)))
    assert before.due(Situation(ARDUPILOT), seen_turning(-0.2), NOW_S) is Due.ZERO


@pytest.mark.parametrize("frame", list(YawFrame))
@pytest.mark.parametrize(("yaw_rate", "nose_rate"), [(0.0, -0.3), (0.3, 0.0), (0.3, 0.1), (0.2, 0.5)])
def test_it_stands_that_stands_towards_north_or_towards_the_nose(frame, yaw_rate, nose_rate):
    """``yaw_rate``: against north, ``nose_rate``: against the vehicle."""
    rates = (yaw_rate, nose_rate) if frame is YawFrame.EARTH else (nose_rate, yaw_rate)
    seen = seen_from(frame, rates[0], yaw_rate - nose_rate)
    assert seen.stands(NOW_S - 1.0, NOW_S) is (yaw_rate * nose_rate == 0.0)
    if not seen.stands(NOW_S - 1.0, NOW_S):
        assert seen.motion(NOW_S - 1.0, NOW_S) == pytest.approx((0.0, *rates))


@pytest.mark.parametrize("pitch_rate", [0.0, 0.2])
def test_a_gimbal_that_trembles_looking_backwards_stands_unless_it_tilts(pitch_rate):
    seen = Standstill()
    for i in range(51):
        t = NOW_S - 1.0 + 0.02 * i
        q = from_yaw_pitch(math.pi + 0.001 * (-1) ** i, pitch_rate * (t - NOW_S))
        seen.take(AttitudeSample(round(t * NS), q, YawFrame.EARTH), t)
    assert seen.stands(NOW_S - 1.0, NOW_S) is (pitch_rate == 0.0)


TURNING = (0.1, 0.3, -0.2)


@pytest.mark.parametrize(
    ("wish", "is_alike"),
    [
        (TURNING, True),
        ((0.1, 0.3, 5.0), True),  # in one of both frames
        ((0.1, 5.0, -0.2), True),
        ((0.1, 5.0, 5.0), False),
        ((-0.1, 0.3, -0.2), False),
        ((0.1, -0.3, 0.2), False),
        ((0.1, 0.201, 5.0), True),  # within half of it
        ((0.1, 0.199, 5.0), False),
        ((0.1 + 0.017, 0.3, 0.3), True),  # or a degree a second
    ],
)
def test_a_motion_is_a_wishs_where_pitch_and_one_yaw_agree(wish, is_alike):
    assert resembles(TURNING, wish) is is_alike
    assert not resembles((math.nan, *TURNING[1:]), wish)


def test_a_rate_of_pitch_is_told_from_one_of_yaw():
    debt = Debt(Rates(0.2, 0.0), NOW_S - 0.8, is_contested=True)
    assert debt.due(Situation(ARDUPILOT), seen_turning(0.2), NOW_S) is Due.LEFT


@pytest.mark.parametrize("silent_s", [0.3, 0.44, 0.46, 0.55])
def test_a_slow_gimbal_that_falls_silent_does_not_seem_to_stand(silent_s):
    """What a pause leaves of the last half second is too short to tell."""
    seen = seen_turning(0.05, NOW_S - silent_s)
    assert not seen.stands(NOW_S - 1.5, NOW_S)
    assert seen.motion(NOW_S - 1.5, NOW_S) == pytest.approx((0.0, 0.05, math.nan), nan_ok=True)


def test_a_gimbal_that_turns_over_the_pole_turns_as_before():
    seen = Standstill()
    for i in range(51):
        t = NOW_S - 1.0 + 0.02 * i
        q = from_yaw_pitch(0.3 + 0.1 * (t - NOW_S), math.radians(95) + 0.26 * (t - NOW_S))
        seen.take(AttitudeSample(round(t * NS), q, YawFrame.EARTH), t)
    assert seen.motion(NOW_S - 1.5, NOW_S) == pytest.approx((0.26, 0.1, math.nan), nan_ok=True)


def moved(manager: Manager) -> tuple[GimbalRates, list[Rates], Situation]:
    """A gimbal that turns by our rate, what was sent to it, and its manager's situation."""
    sent: list[Rates] = []
    rates, at = GimbalRates(sent.append), Situation(manager)
    rates.wish(OURS, 0.0)
    rates.update(True, at, 0.0)
    return rates, sent, at


def test_after_anothers_word_nothing_of_ours_goes_out_where_it_would_stop_them():
    """Not the wish of before, nor a zero when steering ends, until the autopilot was restarted."""
    rates, sent, at = moved(ARDUPILOT)
    rates.rival(at, 0.1)
    rates.update(True, at, 0.12)
    rates.stop(0.14)
    rates.owe()  # the manager says still that it is ours
    rates.update(False, at, 0.16)
    assert not rates.starved(1.0)
    assert sent == [OURS]
    assert rates.due is Due.LOOK
    rates.restarted()
    rates.update(True, at, 1.0)
    assert sent == [OURS, STOPPED]


@pytest.mark.parametrize(
    "end", [lambda rates, at: rates.rival(at, 0.1), lambda rates, at: rates.stop(0.1)], ids=["rival", "stop"]
)
def test_at_the_end_three_zeros_go_out_where_they_count_and_the_wish_of_before_never(end):
    rates, sent, at = moved(PX4)
    end(rates, at)
    rates.update(True, at, 0.12)
    rates.stop(0.14)
    assert sent == [OURS, *[STOPPED] * 3]


def test_that_zeros_go_on_is_told_after_five_seconds_where_no_attitude_comes():
    rates, _, _ = moved(ARDUPILOT)
    rates.stop(0.1)
    assert [rates.unseen(now_s) for now_s in (5.0, 5.2)] == [False, True]
    rates.standstill.take(AttitudeSample(0, (1.0, 0.0, 0.0, 0.0), YawFrame.EARTH), 5.2)
    assert not rates.unseen(5.3)


@pytest.mark.parametrize("manager", [ARDUPILOT, PX4])
def test_what_is_paid_is_not_owed_again_when_another_turns_the_gimbal(manager):
    rates, sent, at = moved(manager)
    yaw, counts = 0.0, []
    for since_s, until_s, rate in ((0.0, 0.5, 0.2), (0.5, 1.5, 0.0), (1.5, 3.0, 0.2)):
        for t in np.arange(since_s, until_s, 0.02):
            yaw += 0.02 * rate
            rates.standstill.take(AttitudeSample(round(t * NS), from_yaw_pitch(yaw, 0.0), YawFrame.EARTH), t)
            rates.wish(OURS, t)
            rates.update(t < 0.5, at, t)
        counts.append(len(sent))
    assert counts[0] < counts[1] == counts[2]
    assert sent[-1] == STOPPED
    assert rates.due is Due.PAID
