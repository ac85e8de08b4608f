"""Where things stand on desktops, phones and enlarged pages; what is seen with the system's own colours."""

from __future__ import annotations

import itertools

import pytest
from barcode_feed import RecordedSteering
from contrast import contrast, over, rgb_of

from benchmarks.browser import until
from efftam_ros.core.geometry import Box
from efftam_ros.core.types import TrackState

SIZES = {
    "desktop": (1440, 900),
    "small desktop": (1280, 800),
    "tablet": (820, 1180),
    "1920 x 1080 at 200 %": (960, 540),
    "1280 x 800 at 200 %": (640, 400),
    "phone on its side": (740, 360),
    "phone on its side with bars": (640, 360),
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
    settled = "(size) => { const [x, y] = size, v = document.getElementById('view');"
    settled += " return v.clientWidth === x && v.clientHeight === y; }"
    hands.page.wait_for_function(settled, arg=list(size))
    hands.page.wait_for_timeout(150)


def place(hands, selector="#view"):
    return hands.page.locator(selector).bounding_box()


# In the page: what can't be reached at its size, or is too small.
FAULTS = """() => {
    const faults = [], box = (e) => e.getBoundingClientRect(), $ = (id) => document.getElementById(id);
    const check = (isRight, what) => isRight || faults.push(what);
    check(document.documentElement.scrollWidth <= innerWidth, "the page scrolls sideways");
    check(document.documentElement.scrollHeight <= innerHeight, "the page scrolls");
    const thumb = ["more", "freeze", "clear", "steer", "stop"].map($), text = document.createRange();
    const isWhole = (one, room) => {
        const it = box(one);
        text.selectNodeContents(one);
        check(Math.min(it.width, it.height) >= 44, `${one.id} is small`);
        check(box(text).width <= it.width && box(text).height <= it.height, `the text of ${one.id} is cut`);
        check(one.scrollWidth <= one.clientWidth + 1, `${one.id} has no room for icon and word`);
        check(room.x - 1 <= it.x && it.right <= room.right + 1, `${one.id} lies beside its place`);
        check(room.y - 1 <= it.y && it.bottom <= room.bottom + 1, `${one.id} is cut`);
    };
    const page = { x: 0, y: 0, right: innerWidth, bottom: innerHeight };
    for (const one of thumb) isWhole(one, page);
    const isLeft = (a, b) => a.right <= b.x + 1, isAbove = (a, b) => a.bottom <= b.y + 1;
    const areApart = (a, b) => a === b || isLeft(a, b) || isLeft(b, a) || isAbove(a, b) || isAbove(b, a);
    const boxes = [...thumb, $("steering-text"), $("state"), $("detail"), $("ages")].map(box);
    check(boxes.every((a) => boxes.every((b) => areApart(a, b))), "what lies on the picture overlaps");
    $("drawer").hidden = false;
    for (const tool of $("tools").children) {
        tool.scrollIntoView({ block: "nearest" });
        isWhole(tool, box($("drawer")));
    }
    check(thumb.every((one) => areApart(box(one), box($("drawer")))), "the drawer covers the thumb zone");
    $("drawer").hidden = true;
    $("help").show();
    check(thumb.every((one) => areApart(box(one), box($("help")))), "the help covers the thumb zone");
    check($("help").scrollWidth <= $("help").clientWidth + 1, "the help is cut");
    const first = $("help").querySelector("p"), close = box($("help-close"));
    text.selectNodeContents(first);
    check([...text.getClientRects()].every((line) => areApart(line, close)), "Close covers the help");
    $("help").close();
    return faults;
}"""


@WINDOWS
def test_all_that_is_pressed_can_be_reached_and_nothing_covers_stop(opened, phone):
    hands, _, sizes = opened(SIZES, phone)
    for size in sizes:
        resize(hands, size)
        assert (size, hands.page.evaluate(FAULTS)) == (size, [])


def share(hands, size) -> float:
    """The part of the screen on which the picture is seen."""
    left, top = hands.at(0, 0)
    right, bottom = hands.at(*hands.image)
    seen = (min(right, size[0]) - max(left, 0)) * (min(bottom, size[1]) - max(top, 0))
    return seen / (size[0] * size[1])


@WINDOWS
def test_the_picture_fills_the_screen(opened, phone):
    hands, _, sizes = opened(SIZES, phone)
    for size in sizes:
        resize(hands, size)
        wide = min(size[0] / 16, size[1] / 9) * 16 * min(size[0] / 16, size[1] / 9) * 9 / (size[0] * size[1])
        until(lambda size=size, wide=wide: share(hands, size) >= max(0.6, wide) - 0.01)
        assert hands.page.locator("#plots").is_hidden()


@WINDOWS
def test_the_picture_stands_still_whatever_is_said(opened, feed, phone):
    names = ["desktop", "1280 x 800 at 200 %", "phone", "small phone", "phone on its side"]
    hands, steering, sizes = opened(names, phone)
    for size in sizes:
        resize(hands, size)
        before = hands.page.get_attribute("#view", "data-place")
        steering.say(phase="off")
        hands.wait_text("#steering-text", "GIMBAL OFF")
        feed.state, feed.box, feed.selection = TrackState.COASTING, Box(300, 150, 80, 60), 1
        hands.wait_text("#detail", "not seen")
        hands.page.click("#steer")
        hands.wait_text("#steer", "Press again")
        hands.page.click("#clear")
        hands.wait_text("#clear", "Clear?")
        assert hands.page.get_attribute("#view", "data-place") == before
        hands.page.click("#stop")  # takes the first press back
        hands.page.click("#clear")
        steering.say(phase="waiting", reason=LONG)
        feed.state, feed.reason = TrackState.IDLE, ""
        hands.wait_text("#state", "IDLE")


def test_on_a_phone_the_target_is_kept_in_view(opened, feed):
    hands, *_ = opened([], True)
    feed.state, feed.selection = TrackState.TRACKING, 1
    for x in (10, 560, 300):
        feed.box = Box(x, 150, 60, 40)
        until(lambda x=x: hands.at(x, 0)[0] >= 0 and hands.at(x + 60, 0)[0] <= 360)
    hands.tool("zoom-fit")
    until(lambda: hands.at(0, 0)[0] == pytest.approx(0, abs=1))
    assert hands.at(640, 0)[0] == pytest.approx(360, abs=1)


# In the page: the elements of the layout that lie on a place of the view and can't be seen through.
COVERS = """([x0, y0, x1, y1]) => {
    const panels = "header > *, #banners > p, #targets, #choice, #hint, #notices > p, footer button";
    return [...document.querySelectorAll(panels)].filter((one) => {
        const it = one.getBoundingClientRect();
        const { visibility, opacity } = getComputedStyle(one);
        const isOver = it.left < x1 && x0 < it.right && it.top < y1 && y0 < it.bottom;
        return it.width > 2 && visibility === "visible" && isOver && opacity > 0.6;
    }).map((one) => one.id || one.dataset.id);
}"""


@WINDOWS
def test_nothing_covers_the_target(opened, feed, phone):
    hands, steering, sizes = opened(
        ["desktop", "phone with the browser's bars", "phone on its side with bars"], phone
    )
    steering.say(phase="control lost", reason="taken")
    feed.state, feed.selection = TrackState.TRACKING, 1
    for size in sizes:
        resize(hands, size)
        for x, y in itertools.product((2, 150, 310, 420, 590), (2, 40, 160, 310)):
            feed.box = Box(x, y, 44, 40)
            hands.see_newer(feed.stamps[-1])

            def is_free(x=x, y=y):
                (left, top), (right, bottom) = hands.at(x, y), hands.at(x + 44, y + 40)
                return hands.page.evaluate(COVERS, [left, top, right, bottom]) == []

            until(is_free)


def test_banners_leave_the_corner_that_is_drawn(opened, feed):
    hands, _, sizes = opened(["phone", "phone on its side"], True)
    banners = hands.page.locator("#banners")
    for count, size in enumerate(sizes, 1):
        resize(hands, size)
        hands.touch("touchStart", (330, 40))
        hands.touch("touchMove", (300, 10))
        feed.state = TrackState.LOST
        hands.wait_text("#banners", "LOST")
        x, y = hands.at(300, 10)

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
        for y in (60, 180, 300):
            hands.touch("touchStart", (300, y - 20))
            hands.touch("touchMove", (360, y + 20))
            hands.touch("touchEnd")
            hands.wait_text("#choice-text", "it will turn to this")
            high, low = hands.at(330, y - 20)[1], hands.at(330, y + 20)[1]
            until(
                lambda high=high, low=low: (
                    not (choice.bounding_box()["y"] < low and high < bottom(choice.bounding_box()))
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
    page.click("#more")
    page.click("#plots-button")
    assert style("#plots-button", "backgroundColor") != style("#lens", "backgroundColor")  # pressed, not
    assert style("#stop", "backgroundColor") == "rgb(213, 94, 0)"
    assert style("#state", "backgroundColor") == "rgb(0, 158, 115)"
    ground = over([style("#plots", "backgroundColor")], (0, 0, 0))

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

    until(lambda: any(contrast(rgb_of(ink), ground) > 7 for ink in inks()))
    context.close()
