"""Stamps of live images on the clock of their arrival: jitter, groups, wrong rates, breaks. No real time."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from efftam_ros.images.streams.arrival import NS, SETTLE_LIMIT_NS, ArrivalClock

MS = 1_000_000
START_NS = 1000 * NS


def arrivals(sent: float, count: int = 300, at_once: int = 1, jitter_ms: float = 3.0) -> np.ndarray:
    """When images of this rate arrive, s: those of a group with its last one, each a little late."""
    groups = (np.arange(count) // at_once + 1) * at_once - 1
    late = np.random.default_rng(1).exponential(jitter_ms / 1000, count)
    return np.maximum.accumulate(groups / sent + late)


def stamped(clock: ArrivalClock, own_s, arrived_s) -> np.ndarray:
    """The stamps, s."""
    pairs = zip(own_s, arrived_s, strict=True)
    found = [clock.stamp_ns(round(own * NS), START_NS + round(at * NS)) for own, at in pairs]
    return (np.array(found) - START_NS) / NS


def used_from(clock: ArrivalClock, said: float, arrived: np.ndarray) -> int:
    """Number of the first image that may be used, once all have come."""
    first = []
    for number, (at, following) in enumerate(pairwise(arrived)):
        clock.stamp_ns(round(number / said * NS), START_NS + round(at * NS))
        if clock.ready_ns <= following * NS + START_NS:
            first.append(number)
    return first[0]


@pytest.mark.parametrize("at_once", [1, 2, 3, 5, 15, 60])
@pytest.mark.parametrize(("said", "sent"), [(30, 30), (25, 60), (30, 15)])
def test_the_first_image_is_used_within_a_second_whatever_the_spacing(said, sent, at_once):
    arrived = arrivals(sent, at_once=at_once)
    number = used_from(ArrivalClock(), said, arrived)
    assert arrived[number] - arrived[0] <= SETTLE_LIMIT_NS / NS
    assert SETTLE_LIMIT_NS < NS


@pytest.mark.parametrize("burst_s", [0.0, 0.6])
def test_what_was_sent_before_the_start_is_passed_over_and_moves_no_stamp(burst_s):
    """60 images that come in so long."""
    arrived, own = arrivals(30), np.arange(300) / 30
    arrived = np.maximum(arrived, arrived[60] + np.minimum(own / 2, 1) * burst_s)
    assert used_from(ArrivalClock(), 30, arrived) >= 60
    assert np.diff(stamped(ArrivalClock(), own, arrived))[80:] == pytest.approx(1 / 30, rel=0.1)


@pytest.mark.parametrize("at_once", [1, 2, 3, 5])
def test_jitter_and_groups_do_not_move_the_stamps_of_good_times(at_once):
    clock, own = ArrivalClock(), np.arange(300) / 30
    stamps = stamped(clock, own, arrivals(30, at_once=at_once))
    assert np.diff(stamps)[30:] == pytest.approx(1 / 30, rel=0.06)
    assert clock.own_rate is None


@pytest.mark.parametrize(("said", "sent"), [(25, 21), (30, 15), (25, 60), (25, 15), (25, 24)])
def test_where_the_rate_and_arrival_disagree_arrival_wins_and_it_is_known(said, sent):
    clock = ArrivalClock()
    stamps = stamped(clock, np.arange(400) / said, arrivals(sent, 400))
    assert clock.own_rate == pytest.approx(sent / said, rel=0.02)
    late = np.arange(400) / sent > 6
    assert np.diff(stamps[late]) == pytest.approx(1 / sent, rel=0.05)
    assert np.abs(stamps - np.arange(400) / sent)[late].max() < 0.02


def test_images_without_times_are_evenly_spaced_and_follow_another_rate():
    """A camera in the dark sends half as many."""
    true = np.concatenate([np.arange(150) / 30, 5 + np.arange(150) / 15])
    clock = ArrivalClock(is_timed=False)
    late = np.random.default_rng(1).exponential(0.003, 300)
    stamps = stamped(clock, np.arange(300) / 25, true + late)
    assert np.diff(stamps)[70:140] == pytest.approx(1 / 30, rel=0.05)
    assert np.diff(stamps)[240:] == pytest.approx(1 / 15, rel=0.05)
    assert np.abs(stamps - true).max() <= 0.21
    assert clock.own_rate is None  # there is nothing to correct


@pytest.mark.parametrize("still_s", [0.2, 0.5, 2.0])
def test_a_connection_that_stands_still_and_catches_up_moves_no_stamp(still_s):
    """Each time that it does."""
    arrived, own = arrivals(30, 600), np.arange(600) / 30
    for from_s in (6, 12):
        arrived = np.where((own > from_s) & (own < from_s + still_s), from_s + still_s, arrived)
    clock = ArrivalClock()
    assert np.diff(stamped(clock, own, arrived)) == pytest.approx(1 / 30, rel=0.1)
    assert clock.own_rate is None


def test_a_delay_that_grows_and_shrinks_is_no_other_rate():
    own = np.arange(600) / 30
    slow = np.clip((own - 5) / 3, 0, 1) * 0.3 - np.clip((own - 10) / 2, 0, 1) * 0.3
    clock = ArrivalClock()
    stamped(clock, own, arrivals(30, 600) + slow)
    assert clock.own_rate is None


def test_a_delay_that_is_larger_from_now_on_is_no_other_rate():
    own, clock = np.arange(600) / 30, ArrivalClock()
    for pair in zip(own, arrivals(30, 600) + 1.5 * (own > 8), strict=True):
        stamped(clock, *([one] for one in pair))
        assert clock.own_rate is None


def test_a_single_slow_image_does_not_move_stamps():
    clock, rng = ArrivalClock(), np.random.default_rng(1)
    delays = rng.exponential(20 * MS, 300).astype(int)
    delays[0] = 0
    stamps = [clock.stamp_ns(i * 33 * MS, i * 33 * MS + 7 * NS + int(d)) for i, d in enumerate(delays)]
    assert {b - a for a, b in pairwise(stamps[:250])} == {33 * MS}


def test_stamps_follow_a_stream_whose_clock_is_set_or_drifts():
    clock = ArrivalClock()
    assert clock.stamp_ns(0, 100 * NS) == 100 * NS
    assert clock.stamp_ns(500 * NS, 101 * NS) == 101 * NS
    assert clock.stamp_ns(3 * NS, 102 * NS) == 102 * NS
    drifting = ArrivalClock()
    last = [drifting.stamp_ns(round(i * 33 * MS * 0.999), i * 33 * MS) for i in range(2000)][-1]
    assert 1999 * 33 * MS - last <= 12 * MS  # 0.1 % over the window of 10 s, and a period
