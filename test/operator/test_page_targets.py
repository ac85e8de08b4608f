"""Several targets on the page in a real browser: seen apart, steered by, added, removed."""

from __future__ import annotations

import pytest
from contrast import contrast, over, rgb_of

from benchmarks.browser import until
from efftam_ros.core.geometry import Box
from efftam_ros.core.types import TrackState
from efftam_ros.images.palette import STATE_STYLES, TARGET_RGB

FIRST, SECOND, FREE = Box(100, 100, 60, 60), Box(300, 200, 60, 60), Box(480, 60, 60, 60)


@pytest.fixture
def two(serve, feed, open_page):
    """``two(phone=False)``: Hands on a page with two targets, steered by target 0."""

    def open_(phone=False):
        feed.max_targets = 4
        follow(feed)
        feed.others[1] = TrackState.TRACKING, SECOND
        hands = open_page(serve(feed).url, phone=phone)
        hands.wait_text("#targets", "1 TRACKING")
        if phone:
            hands.tool("zoom-fit")  # the whole picture
        return hands

    return open_


def follow(feed):
    feed.state, feed.box, feed.selection = TrackState.TRACKING, FIRST, 1


def is_near(colour, rgb):
    return max(abs(a - b) for a, b in zip(colour, rgb, strict=True)) < 60


def pressed(hands):
    """The texts of the list's rows, and those that are pressed."""
    rows = hands.page.locator("#targets button").all()
    return [row.text_content() for row in rows], [
        row.text_content() for row in rows if row.get_attribute("aria-pressed") == "true"
    ]


# Seen


def test_one_target_has_neither_a_list_nor_a_colour_of_its_own(serve, feed, open_page):
    feed.max_targets = 4
    follow(feed)
    hands = open_page(serve(feed).url)
    hands.wait_text("#state", "TRACKING")
    (edge,) = hands.pixels((FIRST.cx, FIRST.y))
    assert is_near(edge, (0x00, 0x9E, 0x73))
    assert not hands.page.is_visible("#targets")


def test_each_of_two_targets_has_its_colour_its_id_and_its_state(two, feed):
    hands = two()
    until(lambda: pressed(hands) == (["0 TRACKING", "1 TRACKING"], ["0 TRACKING"]))
    for box, rgb in ((FIRST, TARGET_RGB[0]), (SECOND, TARGET_RGB[1])):
        assert is_near(hands.pixels((box.cx, box.y))[0], rgb)
    feed.others[1] = TrackState.COASTING, SECOND
    until(lambda: pressed(hands)[0] == ["0 TRACKING", "1 COASTING"])


@pytest.mark.parametrize("sun", [False, True])
def test_the_list_can_be_read_and_makes_room_for_a_drawing(two, sun):
    hands = two()
    if sun:
        hands.tool("sun")
    grounds = []
    for row in (0, 1):
        style = "(row) => [getComputedStyle(row).color, getComputedStyle(row).backgroundColor]"
        ink, ground = hands.page.locator("#targets button").nth(row).evaluate(style)
        for picture in ((0, 0, 0), (255, 255, 255)):
            assert contrast(rgb_of(ink), over([ground], picture)) >= 4.5
        grounds.append(over([ground], (128, 128, 128)))
    assert contrast(*grounds) > 7  # the pressed one, the other
    hands.page.mouse.move(*hands.at(FREE.x, FREE.y))
    hands.page.mouse.down()
    hands.page.wait_for_selector("#targets", state="hidden")
    hands.keys("Escape")
    hands.page.wait_for_selector("#targets")
    hands.page.mouse.up()


def test_a_lost_target_s_border_has_the_colour_of_loss_whatever_its_own_is(two, feed):
    hands = two()
    feed.state = TrackState.LOST
    hands.wait_text("#state", "LOST")
    lost = STATE_STYLES[TrackState.LOST].rgb
    until(lambda: any(is_near(colour, lost) for colour in hands.pixels(*[(2, y) for y in range(100, 300)])))


@pytest.mark.parametrize("way", ["portrait", "landscape"])
def test_on_a_phone_the_list_is_a_row_below_and_covers_nothing_that_is_said(two, feed, way):
    hands = two(phone=True)
    if way == "landscape":
        hands.page.set_viewport_size({"width": 640, "height": 360})
    feed.refuse = "no"
    hands.drag(FREE.x, FREE.y, FREE.x1, FREE.y1)
    hands.page.click("#choice-add")
    hands.wait_text("#notices", "no")
    hands.page.wait_for_selector("#targets")
    places = {name: hands.page.locator(name).bounding_box() for name in ("main", "#targets", "#notices")}
    bottom = {name: box["y"] + box["height"] for name, box in places.items()}
    assert bottom["#targets"] == pytest.approx(bottom["main"], abs=1)
    assert places["#targets"]["height"] < 60
    assert bottom["#notices"] <= places["#targets"]["y"] + 1
    hands.page.click("#targets [data-id='1']")
    hands.page.wait_for_selector("#targets", state="hidden")


# Steered by


@pytest.mark.parametrize("phone", [False, True], ids=["mouse", "thumb"])
def test_a_tap_on_a_box_steers_by_it(two, feed, phone):
    hands = two(phone)
    if phone:
        hands.tap(SECOND.cx, SECOND.cy)
    else:
        hands.page.mouse.click(*hands.at(SECOND.cx, SECOND.cy))
    until(lambda: feed.steered_by == [1])
    until(lambda: pressed(hands)[1] == ["1 TRACKING"])
    assert feed.selections == []
    assert hands.mode == "live"


def test_the_list_steers_by_keys(two, feed):
    hands = two()
    hands.page.locator("#targets button").nth(1).focus()
    hands.keys("Enter")
    hands.wait_text("#choice-text", "Target 1: TRACKING")
    hands.keys("Enter")
    until(lambda: feed.steered_by == [1])


# Removed


@pytest.mark.parametrize("phone", [False, True], ids=["mouse", "thumb"])
def test_a_long_press_on_a_box_removes_it_once_agreed_to(two, feed, phone):
    hands = two(phone)
    steady(hands, SECOND, phone)
    hands.wait_text("#choice-text", "Target 1: TRACKING")
    assert feed.cleared == []
    hands.page.click("#choice-remove")
    until(lambda: feed.cleared == [1])
    hands.page.wait_for_selector("#targets", state="hidden")
    assert feed.selections == []


def steady(hands, box, phone):
    """Press for longer than a tap lasts."""
    if phone:
        hands.touch("touchStart", (box.cx, box.cy))
    else:
        hands.page.mouse.move(*hands.at(box.cx, box.cy))
        hands.page.mouse.down()
    hands.wait_mode("dragging")
    hands.page.wait_for_timeout(800)
    if phone:
        hands.touch("touchEnd")
    else:
        hands.page.mouse.up()
