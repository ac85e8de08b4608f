"""The page in a real browser: what a person does reaches the tracker, and what is true is seen."""

from __future__ import annotations

import time

import pytest
from barcode_feed import BarcodeFeed
from contrast import contrast, over, rgb_of

from benchmarks.browser import one_selection, until
from efftam_operator.feed import Lifecycle
from efftam_operator.server import OperatorServer, serving
from efftam_operator.settings import Settings
from efftam_ros.core.geometry import Box, iou
from efftam_ros.core.types import TrackState
from efftam_ros.images.palette import STATE_STYLES

TOKEN = "0123456789abcdef0123456789abcdef"
# Selecting


def test_the_picture_freezes_while_drawing_and_its_stamp_is_sent(hands, feed):
    mouse = hands.page.mouse
    mouse.move(*hands.at(200, 100))
    mouse.down()
    hands.wait_mode("dragging")
    drawn_on = hands.page.get_attribute("#view", "data-stamp")
    count = len(feed.stamps)
    until(lambda: len(feed.stamps) > count + 15)
    assert hands.page.get_attribute("#view", "data-stamp") == drawn_on
    hands.wait_text("#left", "left")
    mouse.move(*hands.at(260, 150))
    mouse.up()
    selection = one_selection(feed)
    assert iou(selection.box, Box(200, 100, 60, 50)) > 0.95
    assert selection.stamp_ns == int(drawn_on)
    assert selection.stamp_ns in feed.stamps
    hands.wait_text("#notices", "following selection 1")
    hands.wait_mode("live")
    until(lambda: hands.page.get_attribute("#view", "data-stamp") != drawn_on)


def test_an_open_dialog_has_all_keys_but_stop_and_escape_closes_it(hands, feed, steering):
    is_open = "document.getElementById('help').open"
    hands.wait_text("#steering-text", "GIMBAL OFF")
    hands.page.focus("#view")
    hands.keys("?")
    until(lambda: hands.page.evaluate(is_open))
    hands.keys("z", "r", "s")
    until(lambda: steering.calls == ["stop"])
    hands.keys("Escape")
    until(lambda: not hands.page.evaluate(is_open))
    assert hands.mode == "live"
    assert hands.page.get_attribute("#lens", "aria-pressed") == "false"
    hands.keys("Escape")
    hands.keys("s")
    until(lambda: steering.calls == ["stop", "stop"])
    assert feed.cleared == []  # one Escape was the dialog's


def test_the_help_begins_at_its_beginning(hands):
    hands.page.set_viewport_size({"width": 640, "height": 360})
    hands.tool("help-button")
    hands.page.wait_for_selector("#help h2")
    assert hands.page.locator("#help").evaluate(
        "(help) => [help.scrollTop, help.scrollHeight > help.clientHeight]"
    ) == [
        0,
        True,
    ]


def test_zoomed_in_a_box_is_still_in_image_px(hands, feed):
    x, y = hands.at(200, 100)
    whole = hands.scale
    hands.page.mouse.move(x, y)
    hands.page.mouse.wheel(0, -1200)
    until(lambda: float(hands.page.get_attribute("#view", "data-zoom")) > 5)
    hands.page.mouse.down()
    hands.page.mouse.move(x + 120, y + 90)
    hands.page.mouse.up()
    box = one_selection(feed).box
    zoom = 120 / (box.width * whole)
    assert zoom == pytest.approx(float(hands.page.get_attribute("#view", "data-zoom")), rel=0.01)
    assert (box.x, box.y) == pytest.approx((200, 100), abs=0.5)
    assert box.height / box.width == pytest.approx(0.75, abs=0.03)


def test_a_reload_in_the_middle_of_a_drag_selects_nothing_and_keeps_the_seat(hands, feed):
    hands.page.mouse.move(*hands.at(200, 100))
    hands.page.mouse.down()
    hands.wait_mode("dragging")
    hands.page.reload()
    hands.see()
    hands.page.mouse.up()
    assert feed.selections == []
    assert hands.mode == "live"
    hands.drag(200, 100, 260, 150)
    one_selection(feed)


def test_the_stamp_sent_is_the_one_in_the_pixels(serve, feed, open_page):
    """Each round draws a box by pointer events, and reads the stamp from the picture's own pixels."""
    feed.rate_hz, count = 30.0, 50
    hands = open_page(serve(feed, selections_per_s=1000).url)
    left, top = hands.at(0, 0)
    origin = hands.page.locator("#view").bounding_box()
    rounds = hands.page.evaluate(
        """async ([left, top, scale, count]) => {
            const canvas = document.querySelector("#view"), context = canvas.getContext("2d");
            const box = canvas.getBoundingClientRect();
            const stamps = [];
            const event = (type, x, y) => canvas.dispatchEvent(new PointerEvent(type, {
                pointerId: 1, pointerType: "mouse", button: 0, buttons: 1, bubbles: true,
                clientX: box.left + left + x * scale, clientY: box.top + top + y * scale }));
            const screen = () => new Promise(requestAnimationFrame);
            const read = () => {
                let stamp = 0n;
                for (let i = 0; i < 64; i++) {
                    const x = left + (8 * i + 4) * scale, y = top + 8 * scale;
                    const [grey] = context.getImageData(x, y, 1, 1).data;
                    if (grey > 128) stamp |= 1n << BigInt(i);
                }
                return stamp.toString();
            };
            while (stamps.length < count) {
                while (canvas.dataset.mode !== "live") await screen();
                event("pointerdown", 200, 100);
                event("pointermove", 220, 130);
                await screen();
                stamps.push(read());
                event("pointerup", 240, 150);
                await screen();
            }
            return stamps;
        }""",
        [left - origin["x"], top - origin["y"], hands.scale, count],
    )
    until(lambda: len(feed.selections) == count)
    sent = [selection.stamp_ns for selection in feed.selections]
    assert [int(stamp) for stamp in rounds] == sent
    assert set(sent) <= set(feed.stamps)
    assert len(set(sent)) > 0.3 * count


# What is seen


def test_each_state_has_its_word_and_its_colour(hands, feed):
    feed.state, feed.box, feed.selection = TrackState.TRACKING, Box(200, 100, 80, 60), 1
    for state in TrackState:
        feed.state = state
        until(lambda state=state: hands.page.locator("#state").inner_text() == state.name)
        colour = hands.page.evaluate("getComputedStyle(document.querySelector('#state')).backgroundColor")
        rgb = STATE_STYLES[state].rgb
        assert colour == "rgb({}, {}, {})".format(*rgb)
        if state is TrackState.IDLE:
            continue
        hands.see_newer(feed.stamps[-1])
        # Along the box's left side near its upper corner every line style has ink; the label is above.
        assert nearest_colour(hands.pixels(*[(200, 101 + i / 4) for i in range(50)]), rgb) < 30
        if state is TrackState.LOST:
            assert nearest_colour(hands.pixels(*[(1.4, 100 + i / 4) for i in range(40)]), rgb) < 60


def nearest_colour(seen, rgb):
    return min(sum(abs(a - b) for a, b in zip(colour, rgb, strict=True)) for colour in seen)


def test_a_lost_target_leaves_the_picture_fluent_and_the_answer_s_age_is_said(serve, open_page):
    """30 Hz, one answer a second, each a second late: the box is drawn where it was true."""
    feed = BarcodeFeed(rate_hz=30.0)
    feed.state, feed.box, feed.selection = TrackState.TRACKING, Box(200, 100, 80, 60), 1
    hands = open_page(serve(feed).url)
    hands.see_newer(feed.stamps[-1])
    feed.state, feed.answer_every, feed.answer_late = TrackState.LOST, 30, 30
    hands.wait_text("#state", "LOST")
    stamps = hands.page.evaluate(
        """async () => {
            const stamps = [];
            for (const end = performance.now() + 4000; performance.now() < end; ) {
                const { stamp } = document.querySelector("#view").dataset;
                if (stamps.at(-1)?.[0] !== stamp) stamps.push([stamp, Date.now()]);
                await new Promise(requestAnimationFrame);
            }
            return stamps;
        }"""
    )
    assert len(stamps) >= 40  # in 4 s
    ages_s = sorted(at_ms / 1e3 - int(stamp) / 1e9 for stamp, at_ms in stamps)
    assert ages_s[len(ages_s) // 2] <= 0.3
    hands.wait_text("#behind", "s behind")
    lost = STATE_STYLES[TrackState.LOST].rgb
    assert nearest_colour(hands.pixels(*[(200, 101 + i / 4) for i in range(50)]), lost) < 30
    feed.state, feed.answer_every, feed.answer_late = TrackState.TRACKING, 1, 0
    until(lambda: hands.page.locator("#behind").inner_text() == "")
    feed.close()


def test_a_camera_that_changes_its_size_is_followed(hands, feed):
    hands.page.keyboard.press("+")
    feed.size = (960, 720)
    hands.see_newer(feed.stamps[-1])
    hands.image = (960, 720)
    hands.drag(100, 100, 200, 200)
    assert iou(one_selection(feed).box, Box(100, 100, 100, 100)) > 0.95


@pytest.mark.parametrize("theme", ["dark", "sun"])
def test_text_has_a_contrast_of_4_5_to_1_whatever_the_picture(hands, feed, steering, theme):
    """In both themes, with what lies on the picture as on the worst picture."""
    feed.state, feed.box, feed.selection = TrackState.TRACKING, Box(200, 100, 80, 60), 1
    feed.others[1] = TrackState.TRACKING, Box(400, 200, 60, 60)
    hands.wait_text("#targets", "1 TRACKING")
    steering.say(phase="control lost", reason="taken")
    hands.wait_text("#banners", "CONTROL LOST")
    if theme == "sun":
        hands.tool("sun")
    hands.page.click("#more")
    hands.page.click("#numbers summary")
    hands.wait_text("#values", "presence")
    seen = colours_of_text(hands.page)
    assert {"state", "detail", "age", "steering-text", "steer", "stop", "clear", "sun", "DD"} <= {
        name for name, *_ in seen
    }
    for name, ink, grounds in seen:
        for picture in ((0, 0, 0), (255, 255, 255)):
            assert contrast(rgb_of(ink), over(grounds, picture)) >= 4.5, (name, picture)


def colours_of_text(page):
    """Of each element with text: its id, the colour of its text, and those behind it, the nearest first."""
    return page.evaluate(
        """() => {
            const colour = (element) => getComputedStyle(element).backgroundColor;
            const seen = [...document.querySelectorAll("button, output, p, dt, dd, summary")].filter((e) =>
                e.offsetWidth && e.textContent.trim() && !e.closest("#spoken, :disabled"));
            return seen.map((e) => {
                const grounds = [];
                for (let at = e; at && at !== document.body; at = at.parentElement) grounds.push(colour(at));
                return [e.id || e.tagName, getComputedStyle(e).color, grounds];
            });
        }"""
    )


# The seat


def test_two_pages_one_seat_and_a_take_over(serve, feed, open_page):
    url = serve(feed).url
    first, second = open_page(url), open_page(url)
    second.wait_text("#banners", "VIEW ONLY")
    second.drag(200, 100, 260, 150)
    second.wait_text("#notices", "view only")
    assert feed.selections == []
    second.page.click("#banners button")
    first.wait_text("#banners", "VIEW ONLY")
    first.wait_text("#notices", "is in control now")
    second.drag(200, 100, 260, 150)
    one_selection(feed)
    until(lambda: second.page.locator("#banners p").count() == 0)


def test_the_wrong_token_is_said_and_the_right_one_opens(serve, feed, open_page):
    server = serve(feed, token=TOKEN)
    base = server.url.split("#")[0]
    for wrong in ("", "#token=" + "0" * 32):
        hands = open_page(base + wrong, wait=False)
        hands.wait_text("#banners", "NOT ADMITTED")
        hands.wait_text("#banners", "token")
    open_page(server.url)


# Steering


def test_steering_takes_a_deliberate_second_press_and_stop_is_always_there(hands, steering):
    hands.wait_text("#steering-text", "GIMBAL OFF")
    hands.page.dblclick("#steer")
    time.sleep(0.5)
    assert steering.calls == []
    hands.wait_text("#steer", "Press again")
    hands.wait_text("#spoken", "Press again to steer")
    hands.page.click("#steer")
    until(lambda: steering.calls == ["enable"])
    hands.wait_text("#steering-text", "GIMBAL FOLLOWING")
    assert hands.page.locator("#steer").is_disabled()
    hands.page.click("#stop")
    until(lambda: steering.calls[-1] == "stop")
    hands.wait_text("#steering-text", "GIMBAL OFF")
    hands.page.focus("#view")
    hands.keys("s")
    until(lambda: steering.calls.count("stop") == 2)


# When the server ends


def test_a_server_that_was_started_anew_is_found_again_and_nothing_is_left_of_the_one_before(feed, open_page):
    feed.state, feed.box, feed.selection = TrackState.TRACKING, Box(200, 100, 80, 60), 1
    with serving(OperatorServer(Settings(port=0), feed)) as server:
        hands = open_page(server.url)
        hands.wait_text("#state", "TRACKING")
    hands.wait_text("#banners", "NO LINK")
    another = BarcodeFeed()
    another.mute = True
    with serving(OperatorServer(Settings(port=server.port, silent_s=60.0), another)) as server:
        until(lambda: another.sink)
        another.sink(Lifecycle.ACTIVE)  # an answer may take a while
        hands.see_newer(feed.stamps[-1])
        until(lambda: hands.page.locator("#banners p").count() == 0)
        assert server.health()["tracker"] == "alive"
        assert hands.page.locator("#state").inner_text() == "UNKNOWN"
        another.mute = False
        hands.wait_text("#state", "IDLE")
    another.close()
