"""A tap proposes a box, in a real browser: seen with its age, followed only once confirmed."""

from __future__ import annotations

import pytest
from barcode_feed import RecordedSteering

from benchmarks.browser import one_selection, until
from efftam_ros.core.geometry import Box, iou
from efftam_ros.core.types import TrackState
from efftam_ros.operator.feed import Proposal

CAR = Box(180, 80, 80, 50)


@pytest.fixture
def tapped(serve, feed, open_page):
    """``tapped(phone=True)``: Hands on a page where a tap was answered by a proposal of `CAR`."""

    def open_(phone=True, steering=None):
        feed.proposal = lambda asked: Proposal(asked.stamp_ns, CAR)
        hands = open_page(serve(feed, steering=steering).url, phone=phone)
        if phone:
            hands.tap(200, 100)
        else:
            hands.page.mouse.click(*hands.at(200, 100))
        hands.wait_mode("proposed")
        return hands

    return open_


@pytest.mark.parametrize("phone", [False, True], ids=["mouse", "thumb"])
def test_a_second_tap_in_the_proposed_box_follows_it(tapped, feed, phone):
    hands = tapped(phone)
    (asked,) = feed.asked
    assert asked.points[0] == pytest.approx((200, 100), abs=2)
    assert feed.selections == []
    if phone:
        hands.tap(240, 120)
    else:
        hands.page.mouse.click(*hands.at(240, 120))
    selection = one_selection(feed)
    assert iou(selection.box, CAR) > 0.99
    assert selection.points == ()
    assert selection.stamp_ns == asked.stamp_ns


def test_with_keys_alone_a_box_is_proposed_and_followed(serve, feed, open_page):
    feed.proposal = lambda asked: Proposal(asked.stamp_ns, Box(300, 160, 40, 40))
    hands = open_page(serve(feed).url)
    hands.page.focus("#view")
    hands.keys("ArrowLeft", "Enter")
    hands.wait_mode("proposed")
    (asked,) = feed.asked
    assert asked.points == ((319, 180),)
    hands.wait_text("#choice-text", "Follow this? Enter")
    hands.keys("Shift+ArrowRight", "Shift+ArrowDown")
    hands.wait_text("#choice-text", "Arrows draw the box")
    hands.keys("Escape", "Escape", "Enter")  # the cross stands on the other corner
    until(lambda: len(feed.asked) == 2)
    assert feed.asked[1].points == ((329, 190),)
    hands.wait_mode("proposed")
    hands.keys("Enter")
    selection = one_selection(feed)
    assert iou(selection.box, Box(300, 160, 40, 40)) > 0.99
    assert selection.stamp_ns == feed.asked[1].stamp_ns


def test_the_proposal_is_dashed_white_with_its_age(tapped):
    hands = tapped(phone=False)
    across = [(CAR.x + k, CAR.y1) for k in range(2, int(CAR.width) - 2)]
    until(lambda: {min(colour) > 200 for colour in hands.pixels(*across)} == {False, True})
    label = hands.pixels((CAR.x + 1, CAR.y - 4))  # beside its text
    assert min(label[0]) > 200


def test_the_point_itself_and_nothing_at_all_remain_possible(tapped, feed):
    hands = tapped()
    hands.page.tap("#choice-cancel")
    hands.wait_mode("live")
    assert feed.selections == []
    hands.tap(200, 100)
    hands.wait_mode("proposed")
    hands.page.tap("#choice-point")
    assert one_selection(feed).points[0] == pytest.approx((200, 100), abs=2)


def test_why_there_is_no_proposal_is_said_and_the_drawing_goes_on(serve, feed, open_page):
    feed.proposal = lambda asked: Proposal(asked.stamp_ns, reason="the network finds nothing there")
    hands = open_page(serve(feed).url, phone=True)
    hands.tap(200, 100)
    hands.wait_text("#notices", "no proposal: the network finds nothing there")
    assert hands.mode == "corner"


def test_a_gimbal_that_is_steered_is_asked_about_after_the_proposal(tapped, feed):
    steering = RecordedSteering()
    hands = tapped(steering=steering)
    steering.say(enabled=True, phase="following")
    hands.wait_text("#steering-text", "FOLLOWING")
    hands.tap(240, 120)
    hands.wait_text("#choice-text", "it will turn to this")
    assert feed.selections == []
    hands.page.tap("#choice-send")
    assert iou(one_selection(feed).box, CAR) > 0.99


def test_a_tap_inside_a_followed_target_keeps_it(serve, feed, open_page):
    feed.state, feed.box, feed.selection = TrackState.TRACKING, CAR, 1
    feed.proposal = lambda asked: Proposal(asked.stamp_ns, CAR)
    hands = open_page(serve(feed).url, phone=True)
    hands.wait_text("#state", "TRACKING")
    hands.tap(210, 92)
    hands.wait_text("#notices", "this target is followed")
    assert hands.mode == "live"
    hands.tap(212, 94)
    until(lambda: len(feed.asked) == 2)
    hands.wait_mode("live")
    assert feed.selections == []
