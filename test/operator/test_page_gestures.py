"""How a target is drawn by thumb, mouse and keys in a real browser, and what must be agreed to first."""

from __future__ import annotations

import time

import pytest
from barcode_feed import RecordedSteering

from benchmarks.browser import one_selection, until
from efftam_ros.core.geometry import Box, iou
from efftam_ros.core.types import TrackState

# Taps


def test_a_second_tap_on_the_same_place_takes_the_point(phone, feed):
    phone.tap(200, 100)
    phone.wait_mode("corner")
    phone.wait_text("#choice-text", "Tap again to take this point")
    assert feed.selections == []
    phone.tap(204, 103)
    ((x, y),) = one_selection(feed).points
    assert (x, y) == pytest.approx((200, 100), abs=2)
    assert feed.selections[0].labels == (1,)


# Keys


def test_escape_gives_up_the_drawing_and_never_the_target(hands, feed):
    feed.state, feed.box, feed.selection = TrackState.TRACKING, Box(300, 200, 40, 40), 1
    hands.page.mouse.move(*hands.at(200, 100))
    hands.page.mouse.down()
    hands.wait_mode("dragging")
    hands.keys("Escape", "Escape", "Escape")
    hands.wait_mode("live")
    hands.page.mouse.up()
    time.sleep(0.3)
    assert feed.cleared == []
    time.sleep(1.1)
    hands.keys("Escape", "Escape")
    until(lambda: feed.cleared == [0])
    assert feed.selections == []


def test_an_idle_picture_says_what_to_do(hands, feed):
    hint = hands.page.get_by_text("Drag a box around the target", exact=True)
    hint.wait_for(state="visible")
    hands.page.focus("#view")
    hands.keys("Space")
    hint.wait_for(state="hidden")
    hands.keys("Space")
    hint = hands.page.get_by_text("Arrows to the target, then Enter", exact=True)
    hint.wait_for(state="visible")
    feed.state, feed.box = TrackState.TRACKING, Box(300, 200, 40, 40)
    hint.wait_for(state="hidden")


# While the gimbal is steered


@pytest.fixture
def steered(serve, feed, open_page):
    """(hands, steering): a page on which the gimbal follows a target."""
    steering = RecordedSteering()
    hands = open_page(serve(feed, steering=steering).url)
    feed.state, feed.box, feed.selection = TrackState.TRACKING, Box(300, 200, 40, 40), 1
    steering.say(enabled=True, phase="following")
    hands.wait_text("#steering-text", "GIMBAL FOLLOWING")
    hands.wait_text("#state", "TRACKING")
    return hands, steering


def test_a_new_target_asks_once_before_the_gimbal_turns_to_it(steered, feed):
    hands, steering = steered
    hands.drag(200, 100, 260, 150)
    hands.wait_mode("asked")
    hands.wait_text("#choice-text", "it will turn to this")
    time.sleep(0.3)
    assert feed.selections == []
    stamp = int(hands.page.get_attribute("#view", "data-stamp"))
    hands.page.get_by_role("button", name="Turn to it").click()
    selection = one_selection(feed)
    assert iou(selection.box, Box(200, 100, 60, 50)) > 0.95
    assert selection.stamp_ns == stamp
    hands.wait_mode("live")
    assert steering.calls == []
