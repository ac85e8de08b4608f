"""Where things stand on desktops, phones and enlarged pages; what is seen with the system's own colours."""

from __future__ import annotations

import pytest
from barcode_feed import RecordedSteering
from contrast import contrast

from benchmarks.browser import until
from efftam_ros.core.geometry import Box
from efftam_ros.core.types import TrackState

SIZES = {
    "desktop": (1280, 800),
    "1920 x 1080 at 200 %": (960, 540),
    "1280 x 800 at 200 %": (640, 400),
    "1280 x 720 at 200 %": (640, 360),
    "phone on its side": (740, 360),
    "small phone on its side": (568, 320),
    "phone": (360, 740),
    "phone with the browser's bars": (360, 640),
    "small phone": (320, 568),
}
LONG = "the autopilot is silent for 3.2 s; check its link and the address"


# Phones have windows of their own in the browser.
WINDOWS = pytest.mark.parametrize("phone", [False, True], ids=["mouse", "thumb"])


@pytest.fixture
def opened(serve, feed, open_page):
    """``opened(names, phone)``: Hands and steering on a page, and its sizes, px, of these names."""
    steering = RecordedSteering()
    url = serve(feed, steering=steering).url

    def open_(names, phone):
        hands = open_page(url, phone=phone)
        steering.say(phase="waiting", reason=LONG)
        hands.wait_text("#steering-text", LONG)
        return hands, steering, [SIZES[name] for name in names if (min(SIZES[name]) <= 360) is phone]

    return open_


def resize(hands, size):
    hands.page.set_viewport_size({"width": size[0], "height": size[1]})
    hands.page.wait_for_function("width => innerWidth === width", arg=size[0])


def place(hands, selector="#view"):
    return hands.page.locator(selector).bounding_box()


# In the page: what can't be reached at its size, or is too small.
FAULTS = """() => {
    const faults = [], box = (e) => e.getBoundingClientRect(), $ = (id) => document.getElementById(id);
    const check = (isRight, what) => isRight || faults.push(what);
    check(document.documentElement.scrollWidth <= innerWidth, "the page scrolls sideways");
    for (const id of ["stop", "steer"]) {
        const { x, right, bottom } = box($(id));
        check(x >= 0 && right <= innerWidth && bottom <= innerHeight, `${id} leaves the page`);
    }
    const tools = [...$("tools").children], text = document.createRange();
    for (const tool of tools) {
        tool.scrollIntoView({ block: "nearest" });
        const it = box(tool), room = box($("tools"));
        text.selectNodeContents(tool);
        check(Math.min(it.width, it.height) >= 44, `${tool.id} is small`);
        check(box(text).width <= it.width, `the text of ${tool.id} is cut`);
        check(room.x - 1 <= it.x && it.right <= room.right + 1, `${tool.id} lies beside its place`);
        check(room.y - 1 <= it.y && it.bottom <= Math.min(innerHeight, room.bottom) + 1, `${tool.id} is cut`);
    }
    const isLeft = (a, b) => a.right <= b.x + 1, isAbove = (a, b) => a.bottom <= b.y + 1;
    const areApart = (a, b) => a === b || isLeft(a, b) || isLeft(b, a) || isAbove(a, b) || isAbove(b, a);
    const boxes = tools.map(box);
    check(boxes.every((a) => boxes.every((b) => areApart(a, b))), "tools overlap");
    const { width, height } = box(document.querySelector("main"));
    check(height >= innerHeight / 2 && width >= innerWidth / 2, "the picture is small");
    return faults;
}"""


@WINDOWS
def test_all_that_is_pressed_can_be_reached_and_the_picture_has_room(opened, phone):
    hands, _, sizes = opened(SIZES, phone)
    for size in sizes:
        resize(hands, size)
        assert (size, hands.page.evaluate(FAULTS)) == (size, [])


def test_with_plots_the_picture_keeps_half_of_a_phone(opened):
    hands, _, sizes = opened(["phone", "phone with the browser's bars"], True)
    for size in sizes:
        resize(hands, size)
        if not hands.page.locator("#plots").is_visible():
            hands.page.click("#plots-button")
        assert place(hands, "main")["height"] >= size[1] / 2
        assert place(hands, "#stop")["y"] + 52 <= size[1]


@WINDOWS
def test_the_picture_stands_still_whatever_is_said(opened, feed, phone):
    names = ["desktop", "1280 x 800 at 200 %", "1920 x 1080 at 200 %", "phone", "small phone"]
    hands, steering, sizes = opened([*names, "phone on its side"], phone)
    for size in sizes:
        resize(hands, size)
        before = place(hands)
        steering.say(phase="off")
        hands.wait_text("#steering-text", "GIMBAL OFF")
        assert place(hands) == before
        feed.state, feed.box, feed.selection = TrackState.COASTING, Box(200, 100, 80, 60), 1
        feed.reason = "what was followed looks less like the selected target than it has to, for 1.2 s"
        hands.wait_text("#detail", "less like")
        assert place(hands) == before
        hands.page.click("#steer")
        hands.wait_text("#steer", "Press again")
        hands.page.click("#clear")
        hands.wait_text("#clear", "Clear?")
        assert place(hands) == before
        hands.page.click("#stop")  # takes the first press back
        hands.page.click("#clear")
        steering.say(phase="waiting", reason=LONG)
        feed.state, feed.reason = TrackState.IDLE, ""
        hands.wait_text("#state", "IDLE")


def test_a_phone_that_is_turned_shows_plots_only_where_there_is_room(opened):
    hands, *_ = opened([], True)
    plots = hands.page.locator("#plots")
    assert plots.is_visible()
    resize(hands, SIZES["phone on its side"])
    until(lambda: not plots.is_visible())
    hands.page.click("#plots-button")
    assert plots.is_visible()
    assert place(hands, "main")["height"] >= 180
    resize(hands, SIZES["phone"])
    assert plots.is_visible()
    hands.page.click("#plots-button")
    resize(hands, SIZES["phone on its side"])
    until(plots.is_visible)


def test_banners_leave_the_corner_that_is_drawn(opened, feed):
    hands, _, sizes = opened(["phone", "phone on its side"], True)
    banners = hands.page.locator("#banners")
    for count, size in enumerate(sizes, 1):
        resize(hands, size)
        hands.touch("touchStart", (30, 20))
        hands.touch("touchMove", (60, 10))
        feed.state = TrackState.LOST
        hands.wait_text("#banners", "LOST")
        x, y = hands.at(60, 10)

        def is_free(x=x, y=y):
            box = banners.bounding_box()
            return not (box["x"] <= x <= box["x"] + box["width"] and box["y"] <= y <= bottom(box))

        until(is_free)
        hands.touch("touchEnd")
        until(lambda count=count: len(feed.selections) == count)  # it starts to track
        hands.wait_text("#state", "TRACKING")
        feed.state = TrackState.IDLE
        hands.wait_text("#state", "IDLE")


def test_what_is_asked_leaves_what_was_drawn(opened, feed):
    hands, steering, sizes = opened(["phone", "phone on its side"], True)
    steering.say(enabled=True, phase="following")
    hands.wait_text("#steering-text", "GIMBAL FOLLOWING")
    choice = hands.page.locator("#choice")
    for size in sizes:
        resize(hands, size)
        for y in (40, 200, 320):
            hands.touch("touchStart", (300, y - 20))
            hands.touch("touchMove", (360, y + 20))
            hands.touch("touchEnd")
            hands.wait_text("#choice-text", "it will turn to this")
            label, low = hands.at(330, y - 20)[1] - 25, hands.at(330, y + 20)[1]
            until(
                lambda label=label, low=low: (
                    not (choice.bounding_box()["y"] < low and label < bottom(choice.bounding_box()))
                )
            )
            hands.page.click("#choice-cancel")
            hands.wait_mode("live")


def bottom(box):
    return box["y"] + box["height"]


def test_with_the_system_s_colours_all_is_seen(serve, feed, browser):
    feed.state, feed.box, feed.selection = TrackState.TRACKING, Box(200, 100, 80, 60), 1
    context = browser.new_context(forced_colors="active", viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.goto(serve(feed, steering=RecordedSteering()).url)
    page.locator("#state").filter(has_text="TRACKING").wait_for()
    style = lambda selector, name: page.evaluate(  # noqa: E731
        "([selector, name]) => getComputedStyle(document.querySelector(selector))[name]", [selector, name]
    )
    assert style("#plots-button", "backgroundColor") != style("#freeze", "backgroundColor")  # pressed, not
    assert style("#stop", "backgroundColor") == "rgb(213, 94, 0)"
    assert style("#state", "backgroundColor") == "rgb(0, 158, 115)"
    ground = style("#plots", "backgroundColor")

    def inks():
        return page.evaluate("""() => {
            const canvas = document.querySelector("#plot"), context = canvas.getContext("2d");
            const { data } = context.getImageData(0, 0, 100, canvas.height);
            const inks = new Set();
            for (let i = 0; i < data.length; i += 4) {
                if (data[i + 3] === 255) inks.add(`rgb(${data.slice(i, i + 3).join(", ")})`);
            }
            return [...inks];
        }""")

    until(lambda: any(contrast(ink, ground) > 7 for ink in inks()))
    context.close()
