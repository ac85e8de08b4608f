"""Who is silent between controller and gimbal, and whether the gimbal's attitude confirms a STOP."""

from __future__ import annotations

import math

import pytest

from efftam_operator.feed import Link, Stop
from efftam_operator.gimbal_watch import (
    BRIDGE_SILENT_S,
    CONFIRM_S,
    STANDS_S,
    Attitude,
    AttitudeWindow,
    GimbalWatch,
    Heading,
)

DEGREE = math.radians(1.0)
PERIOD_S = 0.05


def turned(yaw: float, pitch: float = 0.0, roll: float = 0.0) -> tuple[float, float, float, float]:
    """The quaternion of these angles, rad."""
    (cy, sy), (cp, sp), (cr, sr) = ((math.cos(a / 2), math.sin(a / 2)) for a in (yaw, pitch, roll))
    return (
        cr * cp * cy + sr * sp * sy,
        sr * cp * cy - cr * sp * sy,
        cr * sp * cy + sr * cp * sy,
        cr * cp * sy - sr * sp * cy,
    )


class Flight:
    """A bridge and an autopilot that report 20 times a second, until one of them is cut off."""

    def __init__(self) -> None:
        self.watch, self.now_s = GimbalWatch(), 0.0
        self.rate = self.yaw = 0.0  # of the gimbal, rad/s and rad from north
        self.has_bridge = self.has_attitude = self.is_alive = True
        self.is_autopilot_silent = False
        self._manager_s = 0.0

    def pass_(self, seconds: float) -> Flight:
        for _ in range(round(seconds / PERIOD_S)):
            self.now_s += PERIOD_S
            self.yaw += self.rate * PERIOD_S
            if self.has_bridge and self.now_s >= self._manager_s:
                self._manager_s = self.now_s + 1.0
                self.watch.hear_manager(self.is_autopilot_silent, self.is_alive, self.now_s)
            if self.has_bridge and self.has_attitude:
                stamp_ns = round(self.now_s * 1e9)
                self.watch.hear_attitude(Attitude(stamp_ns, turned(self.yaw), True), self.now_s)
            self.watch.judge_stop(self.now_s)
        return self

    @property
    def silence(self):
        return self.watch.silence(self.now_s)

    @property
    def doubt(self) -> str:
        return self.watch.judge_stop(self.now_s)


def test_the_link_that_is_silent_is_named_with_the_time_since_its_last_message():
    flight = Flight().pass_(5.0)
    assert flight.silence is None
    flight.has_bridge = False
    flight.pass_(BRIDGE_SILENT_S)
    assert flight.silence is None
    flight.pass_(2.5)
    link, silent_s = flight.silence
    assert (link, silent_s) == (Link.BRIDGE, pytest.approx(BRIDGE_SILENT_S + 2.5))
    flight.has_bridge = True
    assert flight.pass_(1.0).silence is None


def test_autopilot_and_gimbal_are_silent_by_the_bridges_report_and_since_their_last_sign():
    flight = Flight().pass_(2.0)
    flight.has_attitude, flight.is_autopilot_silent = False, True
    flight.pass_(3.0)
    assert flight.silence == (Link.AUTOPILOT, pytest.approx(3.0))
    flight.is_autopilot_silent, flight.is_alive = False, False
    flight.pass_(2.0)
    link, silent_s = flight.silence
    assert link is Link.GIMBAL
    assert silent_s >= 5.0 - PERIOD_S


def test_who_was_never_heard_is_not_missed():
    """A driver of one's own may move the gimbal, and a bridge may serve ground stations alone."""
    watch = GimbalWatch()
    assert watch.silence(100.0) is None
    watch.hear_attitude(Attitude(0, turned(0.0), True), 100.0)
    assert watch.silence(200.0) is None
    watch.hear_manager(True, True, 200.0)
    assert watch.silence(200.5, is_wanted=False) is None
    assert watch.silence(200.5) == (Link.AUTOPILOT, 0.5)  # steering is on


def test_a_stop_is_confirmed_once_the_gimbal_has_stood_for_half_a_second_after_it():
    flight = Flight()
    flight.rate = 20 * DEGREE
    flight.pass_(2.0)
    flight.watch.begin_stop(flight.now_s)
    flight.watch.answer_stop("")
    flight.pass_(0.3)  # it turns on a little
    flight.rate = 0.0
    flight.pass_(STANDS_S - 2 * PERIOD_S)
    assert (flight.watch.stop, flight.doubt) == (Stop.WAITING, "")
    flight.pass_(3 * PERIOD_S)
    assert (flight.watch.stop, flight.doubt) == (Stop.STOPPED, "")
    flight.rate = 20 * DEGREE  # somebody else's
    assert flight.pass_(1.0).watch.stop is Stop.STOPPED


def test_a_stand_from_before_the_stop_confirms_nothing():
    flight = Flight().pass_(5.0)
    flight.watch.begin_stop(flight.now_s)
    flight.watch.answer_stop("")
    flight.pass_(STANDS_S - PERIOD_S)
    assert flight.watch.stop is Stop.WAITING


def cut_bridge(flight: Flight) -> None:
    flight.has_bridge = False


def turn_on(flight: Flight) -> None:
    flight.rate = 2 * DEGREE


def hide_attitude(flight: Flight) -> None:
    flight.has_attitude = False


def silence_autopilot(flight: Flight) -> None:
    flight.has_attitude, flight.is_autopilot_silent = False, True


def silence_gimbal(flight: Flight) -> None:
    flight.is_alive = False  # its manager repeats the last attitude


@pytest.mark.parametrize(
    ("fail", "named"),
    [
        (cut_bridge, "bridge"),
        (turn_on, "turns"),
        (hide_attitude, "no attitude"),
        (silence_autopilot, "autopilot"),
        (silence_gimbal, "gimbal"),
    ],
)
def test_a_stop_that_nothing_confirms_says_why_and_goes_on_until_it_is(fail, named):
    flight = Flight().pass_(2.0)
    fail(flight)
    flight.pass_(1.0)
    flight.watch.begin_stop(flight.now_s)
    flight.watch.answer_stop("")
    flight.pass_(CONFIRM_S - PERIOD_S)
    assert flight.watch.stop is Stop.WAITING
    flight.pass_(60.0)
    assert flight.watch.stop is Stop.UNCONFIRMED
    assert named in flight.doubt
    assert "stick" in flight.doubt
    flight.rate, flight.has_bridge, flight.has_attitude = 0.0, True, True
    flight.is_autopilot_silent, flight.is_alive = False, True
    flight.pass_(1.0 + STANDS_S + 2 * PERIOD_S)
    assert (flight.watch.stop, flight.doubt) == (Stop.STOPPED, "")


def test_a_stop_that_the_controller_has_not_carried_out_is_not_confirmed_by_a_gimbal_that_stands():
    flight = Flight().pass_(2.0)
    flight.watch.begin_stop(flight.now_s)
    flight.pass_(CONFIRM_S + 1.0)
    assert (flight.watch.stop, "controller" in flight.doubt) == (Stop.UNCONFIRMED, True)
    flight.watch.answer_stop("enable is not offered")
    flight.pass_(1.0)
    assert (flight.watch.stop, "not offered" in flight.doubt) == (Stop.UNCONFIRMED, True)


def test_a_second_stop_is_confirmed_for_itself_and_steering_that_is_enabled_ends_both():
    flight = Flight().pass_(1.0)
    for _ in range(2):
        flight.watch.begin_stop(flight.now_s)
        flight.watch.answer_stop("")
        assert flight.watch.stop is Stop.WAITING
        assert flight.pass_(1.0).watch.stop is Stop.STOPPED
    flight.watch.forget_stop()
    assert (flight.pass_(1.0).watch.stop, flight.doubt) == (Stop.NONE, "")


@pytest.mark.parametrize("counts_from_north", [True, False])
@pytest.mark.parametrize("is_locked", [True, False])
def test_it_stands_towards_north_or_towards_the_nose_of_a_turning_vehicle(counts_from_north, is_locked):
    seen, rate = AttitudeWindow(), 30 * DEGREE
    for i in range(40):
        now_s = i * PERIOD_S
        stamp_ns, nose = round(now_s * 1e9), rate * now_s
        # The headings come at other times than the attitudes.
        seen.turn(Heading(stamp_ns - 30_000_000, rate * (now_s - 0.03), rate))
        north = 0.4 if is_locked else 0.4 + nose
        seen.take(
            Attitude(stamp_ns, turned(north - (0.0 if counts_from_north else nose), -0.5), counts_from_north),
            now_s,
        )
    assert seen.stands(0.0, now_s)
    alone = AttitudeWindow()
    for i in range(40):
        alone.take(Attitude(0, turned(rate * i * PERIOD_S), True), i * PERIOD_S)
    assert not alone.stands(0.0, now_s)


def test_axes_that_turn_slowly_or_two_attitudes_or_old_ones_are_no_stand():
    for angles, period_s, stands in (
        ([(0.0, 0.0, 0.0)] * 20, PERIOD_S, True),
        ([(0.0, i * DEGREE * PERIOD_S, 0.0) for i in range(20)], PERIOD_S, False),  # 1 degree/s of pitch
        ([(0.0, 0.0, i * DEGREE * PERIOD_S) for i in range(20)], PERIOD_S, False),  # of roll
        ([(0.0, 0.0, 0.0)] * 3, 0.25, True),
        ([(0.0, 0.0, 0.0)] * 2, 0.5, False),
    ):
        seen = AttitudeWindow()
        for i, each in enumerate(angles):
            seen.take(Attitude(0, turned(*each), True), i * period_s)
        now_s = (len(angles) - 1) * period_s
        assert seen.stands(0.0, now_s) is stands
        assert not seen.stands(0.0, now_s + 0.7)
    broken = AttitudeWindow()
    for i in range(20):
        broken.take(Attitude(0, (math.nan, 0.0, 0.0, 0.0), True), i * PERIOD_S)
        broken.take(Attitude(0, (0.0, 0.0, 0.0, 0.0), True), i * PERIOD_S)
    assert not broken.stands(0.0, 0.95)


@pytest.mark.parametrize(("yaw", "pitch"), [(0.0, 0.0), (70.0, -41.0), (-120.0, 25.0), (179.0, -89.0)])
@pytest.mark.parametrize("from_north", [False, True])
def test_angles_are_from_the_horizon_and_the_nose(yaw: float, pitch: float, from_north: bool):
    stand = AttitudeWindow()
    stand.turn(Heading(0, 30.0 * DEGREE, 0.0))
    sent = yaw + (30.0 if from_north else 0.0)
    stand.take(Attitude(0, turned(sent * DEGREE, pitch * DEGREE), from_north), 1.0)
    found = stand.angles(1.1)
    assert found is not None
    assert [math.degrees(v) for v in found] == pytest.approx([pitch, yaw], abs=1e-6)
    assert stand.angles(60.0) is None


def test_without_the_vehicle_s_heading_the_yaw_of_a_gimbal_that_counts_from_north_is_unknown():
    stand = AttitudeWindow()
    stand.take(Attitude(0, turned(0.5, -0.25), True), 1.0)
    pitch, yaw = stand.angles(1.0)
    assert (pitch, yaw) == (pytest.approx(-0.25), None)
