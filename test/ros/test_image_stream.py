"""The rate of a stream, and the share that the middleware lost of it."""

from __future__ import annotations

import pytest

from efftam_ros.ros.tracker.diagnostics import WINDOW_S, ImageStream, rate_hz


def stream(arrived: int, lost: int) -> ImageStream:
    """At 10 s, after images at 30 Hz."""
    found = ImageStream()
    for i in range(arrived):
        found.received(10.0 - i / 30, 100)
    found.lost(10.0, lost)
    return found


@pytest.mark.parametrize(
    ("arrived", "lost", "share"), [(10, 0, 0.0), (3, 7, 0.7), (0, 20, 1.0), (4, 5, None)]
)
def test_the_share_of_lost_images_is_that_of_all_that_were_sent(arrived, lost, share):
    assert stream(arrived, lost).lost_share(10.0) == share


def test_what_was_lost_long_ago_is_forgotten():
    found = stream(0, 30)
    for i in range(20):
        found.received(10.0 + WINDOW_S + i / 30, 100)
    assert found.lost_share(10.7 + WINDOW_S) == 0.0


def test_the_rate_is_over_the_time_until_now():
    moments = [i / 10 for i in range(101)]
    assert rate_hz([], 0.0) is None
    assert rate_hz(moments, 10.05) == pytest.approx(10.0)
    assert rate_hz(moments, 20.0) == pytest.approx(5.0)
