"""Another machine's clock on ours."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from efftam_flight.control_config import Instant
from efftam_flight.mavlink.autopilot_link import AutopilotLink, WantedIntervals
from efftam_flight.mavlink.clock_map import ClockMap, image_clock
from efftam_flight.mavlink.dialect import mav
from efftam_flight.values import NS


def test_no_message_is_made_after_it_arrived():
    clock = ClockMap()
    for i in range(1000):
        arrival = 0.02 * i + 0.001 * (i % 7)
        assert clock.to_ours(5.0 + 0.02 * i * 1.0001, arrival) <= arrival + 1e-12


def test_a_drifting_clock_is_followed():
    clock = ClockMap()
    for i in range(60 * 50):
        t = 0.02 * i
        made = clock.to_ours(t * (1 - 100e-6), t + 0.005)
    assert made == pytest.approx(t + 0.005, abs=0.0011)


@pytest.mark.parametrize("rate", [0.97, 0.997, 1.003, 1.03])
def test_a_simulators_clock_that_is_percents_off_is_followed(rate: float):
    """Whatever the time, and however late some messages are: its drift is known after four seconds."""
    clock = ClockMap()
    for i in range(300):
        t = 5000.0 + 0.1 * i
        made = clock.to_ours(rate * t, t + 0.005 + 0.04 * (i % 3))
        assert made == pytest.approx(t + 0.005, abs=0.15 if i < 41 else 0.004)
    assert clock.to_theirs(made) == pytest.approx(rate * t)
    assert clock.restarts == 0


@pytest.mark.parametrize(
    ("stamp_ns", "name", "ahead_s"),
    [
        (-5 * NS - 1, None, 0),
        (-5 * NS, "", 0),
        (NS // 10, "", 0),
        (NS // 10 + 1, None, 0),
        (37 * NS - 5 * NS, "atomic time (TAI)", 37),
        (37 * NS + NS // 10, "atomic time (TAI)", 37),
        (37 * NS + NS // 10 + 1, None, 0),
        (-950 * NS, "the time since boot", -950),
    ],
)
def test_a_camera_is_on_the_clock_by_which_its_image_is_0_to_5_s_old(stamp_ns, name, ahead_s):
    """``stamp_ns``: ahead of the system's time of 1000 s, 50 s after the start."""
    found = image_clock(1000 * NS + stamp_ns, Instant(1000 * NS, 50.0))
    assert found == (None if name is None else (name, (1000 + ahead_s) * NS))


def heard_for_ten_seconds() -> ClockMap:
    """Theirs is 490 s ahead of ours."""
    clock = ClockMap()
    for i in range(10):
        clock.to_ours(500.0 + i, 10.0 + i)
    return clock


def test_a_message_that_was_held_up_does_not_look_young():
    clock = heard_for_ten_seconds()
    assert clock.to_ours(510.0, 22.5) == pytest.approx(20.0)
    assert clock.restarts == 0


def test_an_unheard_clock_has_no_time():
    with pytest.raises(ValueError, match="no time of this clock"):
        ClockMap().to_theirs(1.0)


# How long each message takes, s; the clock's own rate; how far it jumps, back or ahead.
delays = st.lists(st.floats(0.0, 3.0), min_size=1, max_size=40)
rates = st.floats(0.96, 1.04)
jumps = st.one_of(st.floats(-1e6, -1.01), st.floats(20.0, 1e6))


def told(clock: ClockMap, delays: list[float], rate: float = 1.0, first_s: float = 500.0, at_s: float = 0.0):
    """Messages every 0.2 s over a link that keeps their order; what the map made of each."""
    made, arrival_s = [], at_s
    for i, delay_s in enumerate(delays):
        sent_s = at_s + 0.2 * i
        arrival_s = max(arrival_s, sent_s + delay_s)
        made.append((sent_s, arrival_s, clock.to_ours(first_s + rate * 0.2 * i, arrival_s)))
    return made


@given(st.lists(st.floats(0.0, 1.5), min_size=1, max_size=12))
def test_of_all_delays_the_least_counts_whichever_came_last(delays):
    """Within four seconds: later a delay that shrinks all the time is taken for drift."""
    clock = ClockMap()
    least_s = 1e9
    for sent_s, arrival_s, made_s in told(clock, delays):
        least_s = min(least_s, arrival_s - sent_s)
        assert made_s - sent_s == pytest.approx(least_s, abs=1e-9)
    assert clock.restarts == 0


@given(delays, rates, jumps, delays, rates)
def test_a_clock_that_was_started_anew_is_as_one_never_heard_before(before, rate, jump_s, after, new_rate):
    clock, fresh = ClockMap(), ClockMap()
    _, last_s, _ = told(clock, before * 4, rate)[-1]
    passed_s = 0.2 * (len(before) * 4 - 1)
    newest_s = 500.0 + rate * passed_s
    first_s = newest_s + jump_s if jump_s < 0.0 else newest_s + last_s - passed_s + jump_s
    again = told(clock, after, new_rate, first_s, last_s)
    assert again == told(fresh, after, new_rate, first_s, last_s)
    assert clock.restarts == fresh.restarts + 1


def test_a_message_that_comes_again_was_made_when_it_was_made_and_never_after_its_arrival():
    link = AutopilotLink((1, 100), 1, SimpleNamespace(send=lambda *message: None))
    for boot_s, arrival_s, made_s in ((10.0, 0.0, 0.0), (10.2, 0.3, 0.2), (10.2, 0.7, 0.2), (10.8, 0.8, 0.8)):
        assert link.time("ATTITUDE", boot_s, Instant(0, arrival_s)) == (pytest.approx(made_s), False)


def test_an_autopilot_that_is_back_by_heartbeats_alone_is_heard_anew_once():
    link = AutopilotLink((1, 100), 1, SimpleNamespace(send=lambda *message: None))
    heartbeat = mav.MAVLink_heartbeat_message(2, mav.MAV_AUTOPILOT_PX4, 0, 0, 0, 3)
    for t in np.arange(0.0, 2.0, 0.1).tolist():
        assert link.receive("udp", heartbeat, t) is (t == 0.0)
        link.time("ATTITUDE", 10.0 + t, Instant(0, t))
    assert [link.receive("udp", heartbeat, t) for t in (4.0, 4.3, 5.0, 6.0)] == [True, False, False, False]


def test_an_autopilot_is_heard_by_the_link_of_its_first_heartbeat_until_that_is_silent():
    link = AutopilotLink((1, 100), 1, SimpleNamespace(send=lambda *message: None))
    heartbeat = mav.MAVLink_heartbeat_message(2, mav.MAV_AUTOPILOT_PX4, 0, 0, 0, 3)
    no_autopilot = mav.MAVLink_heartbeat_message(2, mav.MAV_AUTOPILOT_INVALID, 0, 0, 0, 3)
    for name, message, now_s, is_anew, heard_by in (
        ("udp", no_autopilot, 0.0, False, None),
        ("udp", heartbeat, 0.0, True, "udp"),
        ("serial", heartbeat, 2.9, False, "udp"),
        ("serial", heartbeat, 3.1, True, "serial"),
    ):
        assert link.falls_silent(now_s) is (now_s == 3.1)
        assert (link.receive(name, message, now_s), link.link) == (is_anew, heard_by)


def test_another_rate_is_asked_for_at_once_and_the_same_not_again():
    wanted, asked = WantedIntervals(), []
    for rate_hz in (10.0, 10.0, 20.0, 20.0, 10.0):
        wanted.want(1, 30, rate_hz)
        asked += wanted.due(0.0)[0]
    assert asked == [(1, 30, interval_us) for interval_us in (100_000, 50_000, 100_000)]


@pytest.mark.parametrize(
    ("periods", "complaints"),
    [("rare rare", 0), ("rare rare rare", 1), ("rare " * 6, 1), ("rare rare well rare rare", 0)]
    + [("rare rare rare well rare rare rare rare", 2), ("rare rare restart rare rare", 0)]
    + [("rare rare restart rare rare rare", 1), ("well " * 5, 0)],
)
def test_messages_that_stay_rare_are_complained_of_once_each_time(periods, complaints):
    wanted, told = WantedIntervals(), []
    wanted.want(1, 30, 10.0)
    assert wanted.due(0.0) == ([(1, 30, 100_000)], [])
    for number, period in enumerate(periods.split(), 1):
        if period == "restart":
            wanted.restart()
        for _ in range(10 if period == "well" else 9):
            wanted.received(1, 30)
        asks, complained = wanted.due(2.0 * number)
        assert bool(asks) is (period != "well")
        told += complained
    assert len(told) == complaints
