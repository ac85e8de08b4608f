"""The page on thin links: what is said of the picture, what is drawn on, and how soon."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from barcode_feed import BarcodeFeed
from thin_link import thin_link

from benchmarks.browser import one_selection, until
from efftam_operator.feed import Picture
from efftam_ros.core.types import TrackState

NOISE = cv2.GaussianBlur(np.random.default_rng(1).integers(0, 255, (720, 1280, 3), np.uint8), (0, 0), 2.0)


@pytest.fixture
def landscape():
    """A camera whose whole JPEGs have about 100 kB."""
    feed = BarcodeFeed(rate_hz=15.0, size=(1280, 720))
    feed.remake = lambda picture: Picture(picture.stamp_ns, bgr=lambda: NOISE)
    yield feed
    feed.close()


def painted_width(hands) -> int:
    """Of the bitmap that is on the canvas, px."""
    return hands.page.evaluate("Number(document.getElementById('view').dataset.width)")


def test_at_300_kbit_a_second_a_thumb_draws_on_a_whole_picture_after_a_loss(serve, landscape, open_page):
    landscape.state, landscape.selection = TrackState.TRACKING, 1
    with thin_link(serve(landscape).port, 300e3, 0.02) as port:
        hands = open_page(f"http://127.0.0.1:{port}/", phone=True, size=(1280, 720))
        hands.wait_text("#banners", "small picture:")
        assert 320 <= painted_width(hands) < 640
        landscape.state = TrackState.LOST
        hands.wait_text("#banners", "LOST")
        hands.touch("touchStart", (600, 300))
        hands.touch("touchMove", (700, 360))
        until(lambda: painted_width(hands) == 1280)
        banners = hands.page.locator("#banners")
        until(lambda: "small picture" not in banners.inner_text())
        assert "OLD" not in banners.inner_text()
        frozen = hands.page.get_attribute("#view", "data-stamp")
        hands.touch("touchEnd")
        selection = one_selection(landscape)
        assert str(selection.stamp_ns) == frozen
        x, y, width, height = selection.box.xywh()
        assert (x, y) == pytest.approx((600, 300), abs=3)
        assert (width, height) == pytest.approx((100, 60), abs=3)
        hands.wait_mode("live")
        until(lambda: painted_width(hands) < 640)


def test_on_a_free_link_nothing_is_said_of_it(serve, landscape, open_page):
    hands = open_page(serve(landscape).url, size=(1280, 720))
    until(lambda: painted_width(hands) == 1280)
    assert "small picture" not in hands.page.locator("#banners").inner_text()
