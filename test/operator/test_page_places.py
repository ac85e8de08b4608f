"""All that stands over the picture has a place of its own, in every combination of what is said at a time."""

from __future__ import annotations

from pathlib import Path

import pytest
from barcode_feed import RecordedSteering

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
