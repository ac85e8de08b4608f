"""All that stands over the picture has a place of its own, in every combination of what is said at a time."""

from __future__ import annotations

from pathlib import Path

import pytest
from barcode_feed import RecordedSteering

from benchmarks.browser import until
from efftam_ros.core.types import TrackState

SIZES = ((390, 844), (844, 390), (1280, 800), (768, 1024))  # phones, a desktop, a tablet

COMBINATIONS = Path(__file__).parent / "web" / "places.js"


def resize(hands, size):
    hands.page.set_viewport_size({"width": size[0], "height": size[1]})
    hands.page.wait_for_function("width => innerWidth === width", arg=size[0])


@pytest.mark.parametrize("is_phone", [False, True], ids=["mouse", "thumb"])
def test_nothing_covers_another_whatever_is_said_at_a_time(serve, feed, open_page, is_phone):
    hands = open_page(serve(feed, steering=RecordedSteering()).url, phone=is_phone)
    hands.wait_text("#steering-text", "GIMBAL OFF")
    for size in SIZES:
        if (min(size) < 500) is not is_phone:
            continue
        resize(hands, size)
        count, found = hands.page.evaluate(COMBINATIONS.read_text())
        assert (size, found) == (size, [])
        assert count > 300


def test_the_ring_of_the_time_left_and_the_lens_stand_apart(phone):
    phone.tool("zoom-fit")  # the whole picture
    for size in SIZES:
        resize(phone, size)
        phone.touch("touchStart", (560, 60))
        for at in ((620, 12), (590, 8), (540, 20), (638, 150)):
            phone.touch("touchMove", at)
            assert distance_px(phone.page) > 0, (size, at)
        phone.keys("Escape")
        phone.touch("touchEnd")
        phone.wait_mode("live")


def distance_px(page) -> float:
    """Between lens and ring, once both are painted."""
    return page.evaluate(
        """async () => {
            const { LENS_RADIUS_PX } = await import("/static/geometry.js");
            const [view, left] = ["view", "left"].map((id) => document.getElementById(id));
            for (let i = 0; i < 3 || !view.dataset.lens; i++) await new Promise(requestAnimationFrame);
            const [x, y] = view.dataset.lens.split(" ").map(Number), at = view.getBoundingClientRect();
            const ring = left.getBoundingClientRect(), radius = ring.width / 2;
            const dx = at.x + x - ring.x - radius, dy = at.y + y - ring.y - radius;
            return Math.hypot(dx, dy) - LENS_RADIUS_PX - radius;
        }"""
    )


def test_a_long_reason_is_said_in_full_when_it_is_pressed_until_it_is_another(hands, feed, steering):
    notices = hands.page.locator("#notices")
    for size in SIZES:
        resize(hands, size)
        feed.state, feed.reason = TrackState.LOST, "likeness 0.41 below " + 25 * "and so on " + "to its end"
        steering.say(phase="off", reason="the manager " + 20 * "did not answer " + "component 190")
        hands.wait_text("#detail", "searching")  # a plain line; the tracker's words come when it is pressed
        for id, end in (("steering-text", "component 190"), ("detail", "to its end")):
            hands.page.click(f"#{id}")
            hands.wait_text("#notices p", end)
        steering.say(phase="off", reason="the gimbal is free")
        until(lambda: "component" not in notices.inner_text())
        assert "to its end" in notices.inner_text()
        feed.reason = "not seen"
        until(lambda: "to its end" not in notices.inner_text())
