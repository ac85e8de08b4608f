"""One truth on the page: each cause of not knowing, what it is called, and what it makes grey."""

from __future__ import annotations

import re
from dataclasses import replace

from barcode_feed import RecordedSteering
from thin_link import DyingLink

from benchmarks.browser import until
from efftam_operator.feed import Controller, Lifecycle, Link, Stop, Unreadable
from efftam_ros.core.geometry import Box
from efftam_ros.core.types import TrackState
from efftam_ros.images.palette import STATE_STYLES

ALL = {"badge", "box", "presence", "age", "gimbal"}
GREY_RGB = (0xBB, 0xBB, 0xBB)


def stop_camera(feed, steering, link):
    feed.mute = feed.blind = True


def mute_tracker(feed, steering, link):
    feed.mute = True


def deactivate_tracker(feed, steering, link):
    feed.mute = True
    feed.sink(Lifecycle.INACTIVE)


def hide_pictures(feed, steering, link):
    feed.blind = True


def send_unreadable(feed, steering, link):
    feed.mute, feed.remake = True, lambda picture: Unreadable("image encoding 'yuv99' is not known")


def silence_autopilot(feed, steering, link):
    steering.say(enabled=True, phase="holding", silent=Link.AUTOPILOT, silent_s=2.5)


def silence_bridge(feed, steering, link):
    steering.say(enabled=True, phase="following", silent=Link.BRIDGE, silent_s=1.6)


def kill_bridge_while_off(feed, steering, link):
    steering.say(phase="off", silent=Link.BRIDGE, silent_s=1.6)


def fail_to_stop(feed, steering, link):
    steering.say(phase="off", stop=Stop.UNCONFIRMED, stop_reason="the gimbal still turns")


def freeze_camera(feed, steering, link):
    feed.remake = lambda picture: replace(picture, still_s=3.2)


def end_controller(feed, steering, link):
    steering.say(Controller.GONE, enabled=True, phase="following")


def cut_link(feed, steering, link):
    link.cut()


def mend(feed, steering, link):
    feed.mute, feed.blind, feed.remake = False, False, None
    steering.say(enabled=True, phase="following")
    link.heal()


CAUSES = [
    (cut_link, r"^NO LINK \d+ s", ALL),
    (stop_camera, r"^CAMERA STOPPED \d+ s", ALL),
    (send_unreadable, r"^NO PICTURE.*yuv99", ALL),
    (mute_tracker, r"^TRACKER SILENT \d+ s", ALL - {"age"}),
    (deactivate_tracker, r"^TRACKER INACTIVE", ALL - {"age"}),
    (hide_pictures, r"^PICTURE STOPPED \d+ s", {"box", "age"}),
    (silence_autopilot, r"^AUTOPILOT SILENT \d+ s", {"gimbal"}),
    (silence_bridge, r"^BRIDGE SILENT \d+ s", {"gimbal"}),
    (kill_bridge_while_off, r"^BRIDGE SILENT \d+ s", {"gimbal"}),
    (fail_to_stop, r"^STOP NOT CONFIRMED.*the gimbal still turns", {"gimbal"}),
    (end_controller, r"^GIMBAL GONE \d+ s", {"gimbal"}),
    (freeze_camera, r"^PICTURE FROZEN \d+ s", set()),
]


def grey_parts(hands) -> set[str]:
    """What is grey, as it is painted."""
    page = hands.page
    ink = page.evaluate("""() => {
        const dim = getComputedStyle(document.body).getPropertyValue("--dim").trim();
        const probe = document.body.appendChild(document.createElement("i"));
        probe.style.color = dim;
        const wanted = getComputedStyle(probe).color;
        probe.remove();
        return Object.fromEntries(["detail", "age", "steering-text"].map((id) =>
            [id, getComputedStyle(document.getElementById(id)).color === wanted]));
    }""")
    grey = {part for part, id in (("age", "age"), ("gimbal", "steering-text")) if ink[id]}
    if ink["detail"] and "was TRACKING" in page.locator("#detail").inner_text():
        grey.add("presence")
    if page.locator("#state").inner_text() == "UNKNOWN":
        grey.add("badge")
    seen = hands.pixels(*[(200, 101 + i / 4) for i in range(50)])

    def off(rgb):
        return min(sum(abs(a - b) for a, b in zip(colour, rgb, strict=True)) for colour in seen)

    if off(GREY_RGB) < off(STATE_STYLES[TrackState.TRACKING].rgb):
        grey.add("box")
    return grey


def hear_painted_words(hands, canvas: str, align: str | None = None) -> None:
    """From now on `window.words` gets each text that is painted on the canvas with this id, aligned so."""
    hands.page.evaluate(
        """([canvas, align]) => {
            const paint = CanvasRenderingContext2D.prototype.fillText;
            window.words = [];
            CanvasRenderingContext2D.prototype.fillText = function (text, ...at) {
                const isAligned = align === null || this.textAlign === align;
                if (this.canvas.id === canvas && isAligned) window.words.push(text);
                paint.call(this, text, ...at);
            };
        }""",
        [canvas, align],
    )


def test_each_cause_alone_is_named_and_all_that_it_takes_the_truth_from_goes_grey(serve, feed, open_page):
    feed.state, feed.box, feed.selection = TrackState.TRACKING, Box(200, 100, 80, 60), 1
    steering = RecordedSteering()
    link = DyingLink(serve(feed, steering=steering, silent_s=0.5).port)
    hands = open_page(f"http://127.0.0.1:{link.port}/")
    banners, state = hands.page.locator("#banners p"), hands.page.locator("#state")
    steering.say(enabled=True, phase="following")
    for do, banner, grey in CAUSES:
        until(lambda: state.inner_text() == "TRACKING" and banners.count() == 0)
        until(lambda: grey_parts(hands) == set())
        do(feed, steering, link)
        until(lambda b=banner: banners.count() == 1 and re.search(b, banners.inner_text().replace("\n", " ")))
        until(lambda g=grey: grey_parts(hands) == g)
        if do in (cut_link, mute_tracker, silence_autopilot):
            shown = banners.locator("b").inner_text()
            until(lambda s=shown: banners.locator("b").inner_text() != s)  # the seconds run
        assert banners.count() == 1
        assert re.match(banners.get_attribute("data-title"), hands.page.title())
        mend(feed, steering, link)
    link.close()


def test_the_age_runs_on_while_no_picture_comes(hands, feed):
    stop_camera(feed, None, None)
    hands.wait_text("#banners", "CAMERA STOPPED 2 s")
    age = hands.page.locator("#age").inner_text().replace("\u00a0", " ")
    assert float(age.removeprefix("delay ").removesuffix(" s")) >= 1.9


def test_badge_and_label_speak_of_one_picture(hands, feed):
    """The tracker goes on while a picture is held: its label says that it is of then."""
    feed.state, feed.box, feed.selection = TrackState.COASTING, Box(200, 100, 80, 60), 1
    hear_painted_words(hands, canvas="view")
    until(lambda: any(w.startswith("COASTING") for w in hands.page.evaluate("window.words")))
    hands.page.focus("#view")
    hands.keys("Space")
    hands.wait_mode("frozen")
    feed.state = TrackState.LOST
    hands.wait_text("#state", "LOST")
    hands.page.evaluate("window.words = []")
    until(lambda: any("COASTING" in w for w in hands.page.evaluate("window.words")))
    assert not any(w.startswith("COASTING") for w in hands.page.evaluate("window.words"))


# Loss and return


def test_loss_is_a_banner_across_the_page_a_border_and_the_title_and_so_is_the_return(hands, feed):
    feed.state, feed.box, feed.selection = TrackState.TRACKING, Box(200, 100, 80, 60), 1
    hands.tool("sound")
    assert hands.page.get_attribute("#sound", "aria-pressed") == "true"
    feed.state = TrackState.LOST
    banner = hands.page.locator("#banners [data-id=alarm]")
    until(lambda: banner.count() == 1)
    assert re.match(r"LOST \d+ s\s*searching; tapping or drawing it starts anew", banner.inner_text())
    assert banner.bounding_box()["height"] >= 50
    style = banner.evaluate("(it) => [getComputedStyle(it).backgroundColor, it.className]")
    assert style == ["rgb({}, {}, {})".format(*STATE_STYLES[TrackState.LOST].rgb), "alarm"]
    until(lambda: re.match(r"LOST \d+ s", hands.page.title()))
    hands.see_newer(feed.stamps[-1])
    # The border is at least 8 px wide.
    lost = STATE_STYLES[TrackState.LOST].rgb
    scale = hands.scale
    seen = hands.pixels(*[(x / scale, y) for x in (2, 5, 8) for y in range(100, 160)])
    for i in range(3):
        column = seen[60 * i : 60 * (i + 1)]
        assert min(sum(abs(a - b) for a, b in zip(rgb, lost, strict=True)) for rgb in column) < 60
    feed.state = TrackState.TRACKING
    hands.wait_text("#banners [data-id=alarm]", "SEEN AGAIN")
    until(lambda: hands.page.title().startswith("TRACKING"))
    hands.tool("sound")
    assert hands.page.get_attribute("#sound", "aria-pressed") == "false"


def test_what_the_plots_know_of_now_goes_with_the_tracker(hands, feed):
    feed.state, feed.box, feed.selection = TrackState.TRACKING, Box(200, 100, 60, 40), 1

    hear_painted_words(hands, canvas="plot", align="right")  # as the values beside the rows
    patterns = {"speed": r"\d+ px/s", "confidence": r"\d\.\d\d", "latency": r"\d+ ms", "state": "T"}

    def shown() -> set[str] | None:
        """The values beside the plots since the last call, None: the plots were not painted."""
        words = hands.page.evaluate("window.words.splice(0)")
        return {k for k, p in patterns.items() if any(re.fullmatch(p, w) for w in words)} if words else None

    hands.tool("plots-button")
    until(lambda: shown() == set(patterns))
    feed.mute = True
    hands.wait_text("#banners", "TRACKER SILENT")
    until(lambda: shown() == set())
