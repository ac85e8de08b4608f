"""Another machine's clock on ours."""

from __future__ import annotations

import pytest

from efftam_ros.flight.mavlink.clock_map import ClockMap


def test_the_fastest_message_sets_the_offset():
    clock = ClockMap()
    for i, delay in enumerate((0.02, 0.004, 0.05, 0.01)):
        made = clock.to_ours(100.0 + 0.1 * i, 7.0 + 0.1 * i + delay)
    assert made == pytest.approx(7.0 + 0.3 + 0.004)
    assert clock.to_theirs(7.004) == pytest.approx(100.0)


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


def heard_for_ten_seconds() -> ClockMap:
    """Theirs is 490 s ahead of ours."""
    clock = ClockMap()
    for i in range(10):
        clock.to_ours(500.0 + i, 10.0 + i)
    return clock


def test_a_restart_starts_the_map_anew():
    clock = heard_for_ten_seconds()
    assert clock.to_ours(3.0, 21.0) == pytest.approx(21.0)
    assert clock.restarts == 1
    assert clock.to_ours(900.0, 22.0) == pytest.approx(22.0)
    assert clock.restarts == 2


def test_a_message_that_was_held_up_does_not_look_young():
    clock = heard_for_ten_seconds()
    assert clock.to_ours(510.0, 22.5) == pytest.approx(20.0)
    assert clock.restarts == 0


def test_an_unheard_clock_has_no_time():
    with pytest.raises(ValueError, match="nothing was heard"):
        ClockMap().to_theirs(1.0)
