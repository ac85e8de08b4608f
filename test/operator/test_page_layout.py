"""Where things stand on desktops, phones and enlarged pages; what is seen with the system's own colours."""

from __future__ import annotations

import pytest
from barcode_feed import RecordedSteering

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


def sized(names=SIZES):
    return pytest.mark.parametrize("size", [SIZES[name] for name in names], ids=names)


@pytest.fixture
def open_sized(serve, feed, open_page):
    """``open_sized(size)``: Hands and steering on a page of this size, px."""
    steering = RecordedSteering()
    url = serve(feed, steering=steering).url

    def open_(size):
        hands = open_page(url, phone=min(size) <= 360)
        resize(hands, size)
        steering.say(phase="waiting", reason=LONG)
        hands.wait_text("#steering-text", LONG)
        return hands, steering

    return open_


def resize(hands, size):
    hands.page.set_viewport_size({"width": size[0], "height": size[1]})
    hands.page.wait_for_function("width => innerWidth === width", arg=size[0])


def overlap(a, b):
    return (
        abs(a["x"] + a["width"] / 2 - b["x"] - b["width"] / 2) < (a["width"] + b["width"]) / 2 - 1
        and abs(a["y"] + a["height"] / 2 - b["y"] - b["height"] / 2) < (a["height"] + b["height"]) / 2 - 1
    )


def place(hands, selector="#view"):
    return hands.page.locator(selector).bounding_box()


@sized()
def test_all_that_is_pressed_can_be_reached_and_the_picture_has_room(open_sized, size):
    hands, _ = open_sized(size)
    width, height = size
    page = hands.page
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for button in ("#stop", "#steer"):
        box = place(hands, button)
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        assert box["y"] + box["height"] <= height
    for button in page.locator("#tools button").all():
        button.scroll_into_view_if_needed()
        box, tools = button.bounding_box(), place(hands, "#tools")
        assert min(box["width"], box["height"]) >= 44
        assert tools["x"] - 1 <= box["x"]
        assert box["x"] + box["width"] <= tools["x"] + tools["width"] + 1
        assert tools["y"] - 1 <= box["y"]
        assert box["y"] + box["height"] <= min(height, tools["y"] + tools["height"]) + 1
        text = page.evaluate(
            "(e) => { const r = document.createRange(); r.selectNodeContents(e);"
            " return r.getBoundingClientRect().width; }",
            button.element_handle(),
        )
        assert text <= box["width"]
    boxes = [button.bounding_box() for button in page.locator("#tools button").all()]
    assert not [(a, b) for i, a in enumerate(boxes) for b in boxes[:i] if overlap(a, b)]
    main = place(hands, "main")
    assert main["height"] >= height / 2
    assert main["width"] >= width / 2


@sized(["phone", "phone with the browser's bars"])
def test_with_plots_the_picture_keeps_half_of_a_phone(open_sized, size):
    hands, _ = open_sized(size)
    if not hands.page.locator("#plots").is_visible():
        hands.page.click("#plots-button")
    assert place(hands, "main")["height"] >= size[1] / 2
    assert place(hands, "#stop")["y"] + 52 <= size[1]


@sized(
    ["desktop", "1280 x 800 at 200 %", "1920 x 1080 at 200 %", "phone", "small phone", "phone on its side"]
)
def test_the_picture_stands_still_whatever_is_said(open_sized, feed, size):
    hands, steering = open_sized(size)
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


def test_a_phone_that_is_turned_shows_plots_only_where_there_is_room(open_sized):
    hands, _ = open_sized(SIZES["phone"])
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


@sized(["phone", "phone on its side"])
def test_banners_leave_the_corner_that_is_drawn(open_sized, feed, size):
    hands, _ = open_sized(size)
    banners = hands.page.locator("#banners")
    hands.touch("touchStart", (30, 20))
    hands.touch("touchMove", (60, 10))
    feed.state = TrackState.LOST
    hands.wait_text("#banners", "LOST")
    x, y = hands.at(60, 10)

    def is_free():
        box = banners.bounding_box()
        return not (box["x"] <= x <= box["x"] + box["width"] and box["y"] <= y <= box["y"] + box["height"])

    until(is_free)
    hands.touch("touchEnd")


@sized(["phone", "phone on its side"])
@pytest.mark.parametrize("y", [40, 200, 320], ids=["above", "middle", "below"])
def test_what_is_asked_leaves_what_was_drawn(open_sized, feed, size, y):
    hands, steering = open_sized(size)
    steering.say(enabled=True, phase="following")
    hands.wait_text("#steering-text", "GIMBAL FOLLOWING")
    hands.touch("touchStart", (300, y - 20))
    hands.touch("touchMove", (360, y + 20))
    hands.touch("touchEnd")
    hands.wait_text("#choice-text", "it will turn to this")
    choice = hands.page.locator("#choice")
    label, low = hands.at(330, y - 20)[1] - 25, hands.at(330, y + 20)[1]
    until(lambda: not (choice.bounding_box()["y"] < low and label < bottom(choice.bounding_box())))


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
    inks = page.evaluate("""() => {
        const canvas = document.querySelector("#plot"), context = canvas.getContext("2d");
        const { data } = context.getImageData(0, 0, 100, canvas.height);
        const inks = new Set();
        for (let i = 0; i < data.length; i += 4) {
            if (data[i + 3] === 255) inks.add(`rgb(${data.slice(i, i + 3).join(", ")})`);
        }
        return [...inks];
    }""")
    assert max(contrast(ink, ground) for ink in inks) > 7
    context.close()


def contrast(*colours):
    def luminance(css):
        parts = [int(v) / 255 for v in css[4:-1].split(",")]
        linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
        return sum(a * b for a, b in zip(linear, (0.2126, 0.7152, 0.0722), strict=True))

    low, high = sorted(map(luminance, colours))
    return (high + 0.05) / (low + 0.05)
