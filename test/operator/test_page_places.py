"""All that stands over the picture has a place of its own, in every combination of what is said at a time."""

from __future__ import annotations

from pathlib import Path

import pytest
from barcode_feed import RecordedSteering

from benchmarks.browser import until
from efftam_ros.core.types import TrackState

SIZES = {"phone": (390, 844), "on its side": (844, 390), "desktop": (1280, 800), "tablet": (768, 1024)}

COMBINATIONS = Path(__file__).parent / "web" / "places.js"


@pytest.mark.parametrize("plots", [False, True], ids=["", "with plots"])
@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_nothing_covers_another_whatever_is_said_at_a_time(serve, feed, open_page, size, plots):
    steering = RecordedSteering()
    hands = open_page(serve(feed, steering=steering).url, phone=min(size) < 500)
    hands.page.set_viewport_size({"width": size[0], "height": size[1]})
    hands.wait_text("#steering-text", "GIMBAL OFF")
    if hands.page.locator("#plots").is_visible() != plots:
        hands.page.click("#plots-button")
    count, found = hands.page.evaluate(COMBINATIONS.read_text())
    assert found == []
    assert count > 300


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_the_ring_of_the_time_left_and_the_lens_stand_apart(serve, feed, open_page, size):
    hands = open_page(serve(feed).url, phone=True)
    hands.page.set_viewport_size({"width": size[0], "height": size[1]})
    hands.touch("touchStart", (560, 60))
    for at in ((620, 12), (590, 8), (540, 20), (638, 150)):
        hands.touch("touchMove", at)
        assert distance_px(hands.page) > 0, at


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


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_a_long_reason_is_said_in_full_when_it_is_pressed_until_it_is_another(serve, feed, open_page, size):
    steering = RecordedSteering()
    hands = open_page(serve(feed, steering=steering).url)
    hands.page.set_viewport_size({"width": size[0], "height": size[1]})
    feed.state, feed.reason = TrackState.LOST, "likeness 0.41 below 0.53 " + 20 * "and so on " + "to its end"
    steering.say(phase="off", reason="the gimbal manager " + 20 * "did not answer " + "component 190")
    for id, end in (("steering-text", "component 190"), ("detail", "to its end")):
        hands.wait_text(f"#{id}", end)
        hands.page.click(f"#{id}")
        hands.wait_text("#notices p", end)
    notices = hands.page.locator("#notices")
    steering.say(phase="off", reason="the gimbal is free")
    until(lambda: "component" not in notices.inner_text())
    assert "to its end" in notices.inner_text()
    feed.reason = "not seen"
    until(lambda: "to its end" not in notices.inner_text())
