"""A tap proposes a box, in a real browser: seen with its age, followed only once confirmed."""

from __future__ import annotations

import pytest

from benchmarks.browser import one_selection, until
from efftam_operator.feed import Proposal
from efftam_ros.core.geometry import Box, iou
from efftam_ros.core.types import TrackState

CAR = Box(180, 80, 80, 50)


@pytest.fixture
def tapped(serve, feed, open_page):
    """``tapped(phone=True)``: Hands on a page where a tap was answered by a proposal of `CAR`."""

    def open_(phone=True):
        feed.proposal = lambda asked: Proposal(asked.stamp_ns, CAR)
        hands = open_page(serve(feed).url, phone=phone)
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


def test_a_second_tap_on_the_same_place_takes_the_point(phone, feed):
    phone.tap(200, 100)
    phone.wait_mode("corner")
    phone.wait_text("#choice-text", "Tap again to take this point")
    assert feed.selections == []
    phone.tap(204, 103)
    ((x, y),) = one_selection(feed).points
    assert (x, y) == pytest.approx((200, 100), abs=2)
    assert feed.selections[0].labels == (1,)


@pytest.mark.parametrize("at", ["box", "button"])
def test_where_a_lost_target_may_be_one_tap_follows_it(serve, feed, open_page, at):
    feed.state = TrackState.LOST
    hands = open_page(serve(feed).url, phone=True)
    hands.wait_text("#state", "LOST")
    hands.wait_text("#hint", "starts anew")
    offered = Proposal(feed.stamps[-1], CAR, target_id=0, is_lost=True)

    def offer(picture):
        feed.sink(offered)
        return picture

    feed.remake = offer  # with each picture, because the page shows an offer for 1 s
    hands.wait_text("#choice-text", "Is this the lost target?")
    if at == "box":
        hands.tap(220, 105)
    else:
        hands.page.tap("#choice-send")
    selection = one_selection(feed)
    assert iou(selection.box, CAR) > 0.99
    assert selection.stamp_ns == offered.stamp_ns
    hands.wait_text("#state", "TRACKING")


def test_an_address_with_a_point_opens_with_a_proposal_that_one_press_follows(serve, feed, open_page):
    """Newer pictures take the place of those that the tracker keeps no longer."""
    feed.proposal = lambda asked: Proposal(asked.stamp_ns, CAR)
    feed.buffer_s = 2.0
    hands = open_page(serve(feed).url + "#point=0.34375,0.29167")
    hands.wait_mode("proposed")
    assert feed.asked[0].points[0] == pytest.approx((220, 105), abs=0.1)
    first = hands.page.get_attribute("#view", "data-stamp")
    until(lambda: hands.page.get_attribute("#view", "data-stamp") != first)
    hands.wait_mode("proposed")
    assert hands.page.locator("#notices p").count() == 0
    assert feed.selections == []
    hands.page.click("#choice-send")
    selection = one_selection(feed)
    assert iou(selection.box, CAR) > 0.99
    assert str(selection.stamp_ns) != first
    hands.wait_text("#state", "TRACKING")
    assert hands.mode == "live"
