"""The page under the rules of axe-core, in each state that a person works in."""

from __future__ import annotations

import pytest

from efftam_ros.core.geometry import Box
from efftam_ros.core.types import TrackState

Axe = pytest.importorskip(
    "axe_playwright_python.sync_playwright", reason="axe-core: pip install axe-playwright-python"
).Axe


def live(hands, feed):
    """Nothing is followed."""


def followed(hands, feed):
    feed.state, feed.box, feed.selection = TrackState.TRACKING, Box(200, 100, 80, 60), 1
    hands.wait_text("#state", "TRACKING")


def several(hands, feed):
    followed(hands, feed)
    feed.others[1] = TrackState.LOST, Box(400, 200, 60, 60)
    hands.page.click("#targets [data-id='1']")
    hands.page.locator("#choice-remove").wait_for()


def lost_in_sunlight(hands, feed):
    feed.state, feed.selection = TrackState.LOST, 1
    hands.wait_text("#banners", "LOST")
    hands.tool("sun")


def drawn(hands, feed):
    hands.page.focus("#view")
    hands.keys("r")
    hands.wait_mode("placed")
    hands.page.locator("#choice-send").wait_for()


def refused(hands, feed):
    feed.refuse = "the image is too old"
    hands.drag(200, 100, 260, 150)
    hands.wait_text("#notices .refusal", feed.refuse)


def help_read(hands, feed):
    hands.tool("help-button")
    hands.page.locator("#help").wait_for()


def without_tracker(hands, feed):
    feed.mute = True
    hands.wait_text("#banners", "TRACKER SILENT")


@pytest.mark.parametrize(
    "bring", [live, followed, several, lost_in_sunlight, drawn, refused, help_read, without_tracker]
)
def test_axe_core_finds_nothing(hands, feed, steering, bring):
    hands.wait_text("#steering-text", "GIMBAL OFF")
    bring(hands, feed)
    for size in ({"width": 1280, "height": 800}, {"width": 360, "height": 740}):
        hands.page.set_viewport_size(size)
        violations = Axe().run(hands.page).response["violations"]
        assert [(v["id"], v["help"], [node["html"] for node in v["nodes"]]) for v in violations] == []
