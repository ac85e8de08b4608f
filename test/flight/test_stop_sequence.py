"""The stop sequence: the rule alone, for any autopilot, gimbal and moment."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from efftam_flight.mavlink.gimbal.rates import GimbalRates
from efftam_flight.mavlink.gimbal.standstill import GimbalMotion, resembles
from efftam_flight.mavlink.gimbal.stop_sequence import KINDS, AutopilotKind, Situation, StopSequence, StopStep
from efftam_flight.values import NS, STOPPED, AttitudeSample, Rates, VehicleSample, YawFrame
from simulation.rotations import from_yaw_pitch

NOW_S = 100.0
ARDUPILOT, PX4 = KINDS.values()
OURS = Rates(0.0, 0.2)


def seen_turning(yaw_rate: float, until_s: float = NOW_S) -> GimbalMotion:
    """A gimbal whose attitude comes at 50 Hz for the second before, standing where the rate is 0; it looks
    backwards, where its yaw goes from pi to -pi."""
    return seen_from(YawFrame.EARTH, yaw_rate, None, until_s)


def seen_from(frame: YawFrame, yaw_rate: float, turn: float | None, until_s: float = NOW_S) -> GimbalMotion:
    """``yaw_rate``: in that frame; ``turn``: the vehicle's, None where no heading comes."""
    seen = GimbalMotion()
    for i in range(51):
        t = until_s - 1.0 + 0.02 * i
        if turn is not None:
            seen.turned(VehicleSample(round(t * NS), turn * (t - NOW_S + 0.25) + math.pi, turn))
        q = from_yaw_pitch(yaw_rate * (t - NOW_S + 0.25) + math.pi, 0.0)
        seen.take(AttitudeSample(round(t * NS), q, frame), t)
    return seen


kinds = st.sampled_from([ARDUPILOT, PX4, AutopilotKind()])
situations = st.builds(
    Situation, kinds, st.booleans(), st.booleans(), st.sampled_from([1.0, 11.9, 12.1, math.inf])
)
# Of the past, of the last half second, or not yet.
moments = st.sampled_from([NOW_S - 0.9, NOW_S - 0.6, NOW_S - 0.3, math.inf])
sequences = st.builds(
    StopSequence,
    st.just(OURS),
    st.sampled_from([NOW_S - 0.9, NOW_S - 0.6, NOW_S - 0.3]),
    st.sampled_from([None, (0.0, 0.2, 0.2), (0.0, -0.5, -0.5)]),
    moments,
    moments,
)
turning = st.sampled_from([0.0, 0.05, 0.2, -0.5, 0.6])
# 0.46 s ago: what is left of the last half second is too short to tell that it stands.
heard = st.sampled_from([NOW_S, NOW_S - 0.3, NOW_S - 0.46, NOW_S - 0.7])


@given(sequences, situations, turning, heard)
def test_only_a_gimbal_that_stands_ends_it_and_only_one_that_is_driven_or_was_sent_a_zero(
    sequence, at, rate, heard_s
):
    seen = seen_turning(rate, heard_s)
    if sequence.step(at, seen, NOW_S) is StopStep.DONE:
        assert rate == 0.0
        assert NOW_S - heard_s <= 0.6
        assert at.boot_s >= at.autopilot.wakes_s
        since_s = sequence.zeros_s if sequence.turned is None else sequence.ended_s
        assert since_s <= NOW_S - 0.5


@given(sequences, situations, turning, heard)
def test_where_the_manager_gates_zeros_go_out_exactly_while_we_are_in_control(sequence, at, rate, heard_s):
    at = at._replace(autopilot=PX4)
    step = sequence.step(at, seen_turning(rate, heard_s), NOW_S)
    assert step in ((StopStep.ZERO, StopStep.DONE) if at.in_control else (StopStep.USELESS, StopStep.DONE))


@given(sequences, situations, turning, heard)
def test_where_it_does_not_gate_only_somebody_known_keeps_a_zero_back(sequence, at, rate, heard_s):
    at = at._replace(autopilot=ARDUPILOT)
    step = sequence.step(at, seen_turning(rate, heard_s), NOW_S)
    if step in (StopStep.WATCH, StopStep.TAKEN):
        assert sequence.is_contested or at.another
    if step is StopStep.TAKEN:
        assert at.boot_s >= ARDUPILOT.wakes_s
        assert rate != OURS.yaw
        assert sequence.turned is None or rate == 0.0 or rate != sequence.turned[1]


@given(sequences, situations, turning, heard)
def test_once_another_was_heard_no_zero_goes_out_but_to_a_gimbal_that_turns_by_our_rate(
    sequence, at, rate, heard_s
):
    at = at._replace(autopilot=ARDUPILOT)
    sequence = replace(sequence, contested_s=NOW_S - 0.8)
    if sequence.step(at, seen_turning(rate, heard_s), NOW_S) is StopStep.ZERO:
        assert rate in (OURS.yaw, *([sequence.turned[1]] if sequence.turned else []))


@pytest.mark.parametrize(
    ("rate", "turned", "step"),
    [
        (0.2, None, StopStep.ZERO),  # as we asked
        (0.29, None, StopStep.ZERO),  # within half of it
        (0.31, None, StopStep.TAKEN),
        (-0.2, None, StopStep.TAKEN),
        (-0.2, (0.0, -0.2, -0.2), StopStep.ZERO),  # as it turned while we moved it
        (0.0, None, StopStep.TAKEN),  # by our rate it would turn
        (0.0, (0.0, 0.2, 0.2), StopStep.TAKEN),
    ],
)
def test_whether_anothers_command_counted_is_seen_by_the_gimbals_attitude(rate, turned, step):
    seen = seen_turning(rate)
    contested = StopSequence(OURS, NOW_S - 0.9, turned, contested_s=NOW_S - 0.8)
    assert contested.step(Situation(ARDUPILOT), seen, NOW_S) is step
    # Soon after the command its effect is waited for.
    soon = replace(contested, contested_s=NOW_S - 0.3)
    if rate:
        assert soon.step(Situation(ARDUPILOT), seen, NOW_S) is StopStep.WATCH


@pytest.mark.parametrize(
    ("rate", "step"), [(0.2, StopStep.ZERO), (-0.2, StopStep.TAKEN), (0.0, StopStep.ZERO)]
)
def test_where_only_the_manager_names_another_the_gimbal_is_stopped_unless_it_is_moved_otherwise(rate, step):
    """It had the time to stand: what still turns otherwise is turned by the other."""
    sequence = StopSequence(OURS, NOW_S - 1.5, None, NOW_S - 0.3)
    assert sequence.step(Situation(ARDUPILOT, another=True), seen_turning(rate), NOW_S) is step
    soon = replace(sequence, ended_s=NOW_S - 0.3)
    assert soon.step(Situation(ARDUPILOT, another=True), seen_turning(rate), NOW_S) is StopStep.ZERO


def seen_braking() -> GimbalMotion:
    """A gimbal that turned at 0.5 rad/s half a second ago, and now hardly turns: 0.25 rad/s on average."""
    seen = GimbalMotion()
    for i in range(51):
        t = NOW_S - 1.0 + 0.02 * i
        left_s = NOW_S - max(t, NOW_S - 0.5)
        yaw = -0.5 * left_s**2 - (0.5 * max(NOW_S - 0.5 - t, 0.0))
        seen.take(AttitudeSample(round(t * NS), from_yaw_pitch(yaw, 0.0), YawFrame.EARTH), t)
    return seen


def test_braking_that_passes_our_rate_is_not_taken_for_it():
    contested = StopSequence(Rates(0.0, 0.25), NOW_S - 0.9, contested_s=NOW_S - 0.8)
    assert contested.step(Situation(ARDUPILOT), seen_braking(), NOW_S) is StopStep.TAKEN


@pytest.mark.parametrize(("is_turning", "step"), [(True, StopStep.ZERO), (False, StopStep.TAKEN)])
def test_a_rate_too_slow_to_be_seen_at_once_is_told_after_two_seconds(is_turning, step):
    rate = math.radians(0.3)
    sequence = StopSequence(Rates(0.0, rate), 0.0, contested_s=0.0)
    seen, steps = GimbalMotion(), []
    for i in range(150):
        t = 0.02 * i
        yaw = rate * t if is_turning else 0.0
        seen.take(AttitudeSample(round(t * NS), from_yaw_pitch(yaw, 0.0), YawFrame.EARTH), t)
        steps.append(sequence.step(Situation(ARDUPILOT), seen, t))
    assert set(steps[:95]) == {StopStep.WATCH}
    assert steps[120] is step


def test_a_gimbal_that_turns_by_a_rate_from_before_a_cut_is_ours():
    sequence = StopSequence(OURS, NOW_S - 0.8, contested_s=NOW_S - 0.8)
    assert sequence.step(Situation(ARDUPILOT), seen_turning(-0.2), NOW_S) is StopStep.TAKEN
    before = replace(sequence, earlier=(Rates(0.0, 0.1), Rates(0.0, -0.2)))
    assert before.step(Situation(ARDUPILOT), seen_turning(-0.2), NOW_S) is StopStep.ZERO


def test_while_the_mount_sleeps_anothers_command_is_neither_undone_nor_taken_to_count():
    """ArduPilot keeps it, and drives its mount later."""
    at = Situation(ARDUPILOT, boot_s=11.0)
    contested = StopSequence(OURS, NOW_S - 0.9, contested_s=NOW_S - 0.8)
    for rate in (0.0, 0.2, -0.2):
        assert contested.step(at, seen_turning(rate), NOW_S) is StopStep.WATCH


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
    seen = GimbalMotion()
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
    sequence = StopSequence(Rates(0.2, 0.0), NOW_S - 0.8, contested_s=NOW_S - 0.8)
    assert sequence.step(Situation(ARDUPILOT), seen_turning(0.2), NOW_S) is StopStep.TAKEN


@pytest.mark.parametrize("silent_s", [0.3, 0.44, 0.46, 0.55])
def test_a_slow_gimbal_that_falls_silent_does_not_seem_to_stand(silent_s):
    """What a pause leaves of the last half second is too short to tell."""
    seen = seen_turning(0.05, NOW_S - silent_s)
    assert not seen.stands(NOW_S - 1.5, NOW_S)
    assert seen.motion(NOW_S - 1.5, NOW_S) == pytest.approx((0.0, 0.05, math.nan), nan_ok=True)


def test_a_gimbal_that_turns_over_the_pole_turns_as_before():
    seen = GimbalMotion()
    for i in range(51):
        t = NOW_S - 1.0 + 0.02 * i
        q = from_yaw_pitch(0.3 + 0.1 * (t - NOW_S), math.radians(95) + 0.26 * (t - NOW_S))
        seen.take(AttitudeSample(round(t * NS), q, YawFrame.EARTH), t)
    assert seen.motion(NOW_S - 1.5, NOW_S) == pytest.approx((0.26, 0.1, math.nan), nan_ok=True)


def moved(kind: AutopilotKind) -> tuple[GimbalRates, list[Rates], Situation]:
    """A gimbal that turns by our rate, what was sent to it, and its manager's situation."""
    sent: list[Rates] = []
    rates, at = GimbalRates(sent.append), Situation(kind)
    rates.wish(OURS, 0.0)
    rates.update(True, at, 0.0)
    return rates, sent, at


def turn(rates: GimbalRates, yaw_rate: float, since_s: float, until_s: float) -> None:
    for t in np.arange(since_s, until_s, 0.02):
        q = from_yaw_pitch(yaw_rate * t, 0.0)
        rates.standstill.take(AttitudeSample(round(t * NS), q, YawFrame.EARTH), t)


def test_after_anothers_command_nothing_of_ours_goes_out_until_its_effect_is_seen():
    """Not the wish of before, nor a zero when steering ends."""
    rates, sent, at = moved(ARDUPILOT)
    rates.on_rival(False, False, 0.1)
    rates.update(True, at, 0.12)
    rates.stop(0.14)
    rates.stop_unknown()  # the manager says still that it is ours
    rates.update(False, at, 0.16)
    assert not rates.starved(1.0)
    assert sent == [OURS]
    assert rates.step is StopStep.WATCH
    rates.on_restart()
    rates.update(True, at, 1.0)
    assert sent == [OURS, STOPPED]


@pytest.mark.parametrize(("yaw_rate", "then"), [(-0.3, []), (0.0, []), (OURS.yaw, [STOPPED])])
def test_a_command_that_was_seen_to_count_ends_it_for_good_until_steering_is_enabled_again(yaw_rate, then):
    """Whatever happens to the gimbal afterwards: it may stand, or turn as we would."""
    rates, sent, at = moved(ARDUPILOT)
    rates.on_rival(False, False, 0.1)
    turn(rates, yaw_rate, 0.1, 0.8)
    rates.update(True, at, 0.8)
    assert sent == [OURS, *then]
    if not then:
        assert rates.step is StopStep.DONE
        turn(rates, OURS.yaw, 0.8, 1.8)
        for act in (rates.stop_unknown, rates.on_restart, lambda: rates.stop(1.8)):
            act()
            rates.wish(OURS, 1.8)
            rates.update(True, at, 1.8)
        assert sent == [OURS]
        rates.begin()
        rates.update(True, at, 1.8)
        assert sent == [OURS, OURS]


def test_what_px4_obeys_from_anybody_ends_it_for_good_at_once():
    rates, sent, at = moved(PX4)
    rates.on_rival(True, True, 0.1)
    rates.stop(0.14)
    rates.stop_unknown()
    rates.update(True, at, 0.16)
    assert sent == [OURS]
    assert rates.step is StopStep.DONE


@pytest.mark.parametrize(
    "end",
    [lambda rates: rates.on_rival(False, True, 0.1), lambda rates: rates.stop(0.1)],
    ids=["rival", "stop"],
)
def test_at_the_end_three_zeros_go_out_where_they_count_and_the_wish_of_before_never(end):
    rates, sent, at = moved(PX4)
    end(rates)
    rates.update(True, at, 0.12)
    rates.stop(0.14)
    assert sent == [OURS, *[STOPPED] * 3]


def test_that_zeros_go_on_is_reported_after_five_seconds_where_no_attitude_comes():
    rates, _, _ = moved(ARDUPILOT)
    rates.stop(0.1)
    assert [rates.unseen(now_s) for now_s in (5.0, 5.2)] == [False, True]
    rates.standstill.take(AttitudeSample(0, (1.0, 0.0, 0.0, 0.0), YawFrame.EARTH), 5.2)
    assert not rates.unseen(5.3)


@pytest.mark.parametrize("kind", [ARDUPILOT, PX4])
def test_a_sequence_that_is_done_does_not_begin_again_when_another_turns_the_gimbal(kind):
    rates, sent, at = moved(kind)
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
    assert rates.step is StopStep.DONE
