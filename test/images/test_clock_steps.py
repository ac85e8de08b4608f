"""A live stream whose clock steps, or single times of which are wrong: arrival tells. No real time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from efftam_ros.images.streams.arrival import NS, ArrivalClock

COUNT, AT = 450, 150
TRUE = np.arange(COUNT) / 30


def ages(
    own: np.ndarray, true: np.ndarray = TRUE, arrived: np.ndarray | None = None
) -> tuple[np.ndarray, int]:
    """How much too old the stamps are, s, and how often the clock is said to have stepped."""
    clock, late = ArrivalClock(), np.random.default_rng(1).exponential(0.004, len(own))
    at = np.maximum.accumulate((true if arrived is None else arrived) + late)
    stamps = [clock.stamp_ns(round(o * NS), round((1000 + a) * NS)) for o, a in zip(own, at, strict=True)]
    return true - (np.array(stamps) / NS - 1000), clock.clock_steps


@pytest.mark.parametrize("step_s", [-0.12, -0.3, -0.5, -0.9, -5.0, 0.12, 0.5, 0.9, 5.0])
def test_a_step_of_the_clock_is_followed_at_once_and_counted_once(step_s: float):
    found, steps = ages(TRUE + np.where(np.arange(COUNT) >= AT, step_s, 0.0))
    assert np.abs(found[60:]).max() < 0.03
    assert np.diff(TRUE - found).min() > 0.02
    assert steps == 1


@pytest.mark.parametrize("off_s", [-0.6, -0.1, 0.1, 0.6, 3.0])
@pytest.mark.parametrize("images", [1, 3])
def test_single_wrong_times_move_no_other_stamp(off_s: float, images: int):
    wrong = (np.arange(COUNT) >= AT) & (np.arange(COUNT) < AT + images)
    found, steps = ages(TRUE + np.where(wrong, off_s, 0.0))
    assert np.abs(found[60:]).max() < 0.03
    assert steps >= 1


def test_equal_times_now_and_then_are_no_other_rate():
    found, _ = ages(TRUE[np.arange(COUNT) - (np.arange(COUNT) % 5 == 4)])
    assert np.abs(found[60:]).max() < 0.05


def test_a_clock_that_was_set_in_a_gap_is_noticed_by_arrival_within_half_a_second():
    """The stream stood still for 0.5 s, and its times say 0.2 s."""
    behind = np.arange(COUNT) >= AT
    true = TRUE + 0.5 * behind
    found, steps = ages(TRUE + 0.2 * behind, true)
    late = true > true[AT] + 0.5
    assert np.abs(found[late]).max() < 0.05
    assert steps == 1


@pytest.mark.parametrize(
    "case",
    [
        lambda i: (TRUE[i] + (i >= AT), TRUE[i] + (i >= AT), TRUE[i] + (i >= AT)),  # a second is lost
        # The network stands still, catches up, and has lost what did not fit.
        lambda i: (
            TRUE[i] + (i >= AT + 15),
            TRUE[i] + (i >= AT + 15),
            7.0 if AT <= i < AT + 15 else TRUE[i] + (i >= AT + 15),
        ),
        lambda i: (TRUE[i], TRUE[i], max(TRUE[i], 5.5) if i >= AT else TRUE[i]),  # stands still, catches up
    ],
    ids=["lost", "lost and late", "late"],
)
def test_what_the_network_does_is_no_step_of_the_clock(case: Callable):
    own, true, arrived = np.array([case(i) for i in range(COUNT)]).T
    found, steps = ages(own, true, arrived)
    assert np.abs(found[60:]).max() < 0.03
    assert steps == 0
