"""The screenshots of docs/operator.md, made anew with EFFTAM_UPDATE_IMAGES=1."""

from __future__ import annotations

import os
import time
from pathlib import Path

import cv2
import numpy as np
import pytest
from barcode_feed import BarcodeFeed, RecordedSteering
from ground_scene import HEIGHT, WIDTH, GroundScene

from benchmarks.browser import Hands
from efftam_ros.core.types import TrackState
from efftam_ros.messages.reports import BoxReport, MotionReport
from efftam_ros.operator.feed import Picture

DOCS = Path(__file__).parents[2] / "docs" / "images"
PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
DESKTOP = {"viewport": {"width": 1200, "height": 720}}
SCENE = GroundScene()


class SceneFeed(BarcodeFeed):
    """The scene in real time; the car is found where it is as soon as something was selected."""

    def __init__(self) -> None:
        super().__init__(rate_hz=15.0, size=(WIDTH, HEIGHT))
        self._began = time.monotonic()
        self.times: dict[int, float] = {}  # of the pictures, in the scene

    def emit(self, stamp_ns: int) -> None:
        self.times[stamp_ns] = t = (time.monotonic() - self._began) % 12
        picture = SCENE.picture(t)
        self.sink(Picture(stamp_ns, bgr=lambda: picture))
        self.sink(report(t, stamp_ns, self.state if self.selection else TrackState.IDLE, self.reason))
        moves = self.selection > 0 and self.state is not TrackState.LOST
        self.sink(MotionReport(stamp_ns, valid=moves, velocity=(45.0, -9.0)))


def report(t, stamp_ns, state, reason=""):
    measured = state in (TrackState.ACQUIRING, TrackState.TRACKING)
    return BoxReport(
        stamp_ns,
        (WIDTH, HEIGHT),
        state,
        reason=reason,
        measured=measured,
        box=SCENE.car(t) if measured or state is TrackState.COASTING else None,
        presence=0.95 + 0.03 * np.sin(3 * t) if measured else 0.12,
        quality=0.84 + 0.05 * np.sin(2 * t) if measured else float("nan"),
        age_s=0.0 if measured else 2.1 if state is TrackState.LOST else 0.8,
        likeness=0.81 + 0.04 * np.sin(t) if measured else float("nan"),
    )


C, L, T = TrackState.COASTING, TrackState.LOST, TrackState.TRACKING


def linger(seconds):
    """Let the page's curves and marks fill, where the guide's images are taken anew."""
    if os.environ.get("EFFTAM_UPDATE_IMAGES"):
        time.sleep(seconds)


def save(page, name, folder):
    """Keep a screenshot without what is said for a moment; it must show something."""
    page.evaluate("document.querySelector('#notices').replaceChildren()")
    path = folder / "page.png"
    page.screenshot(path=path)
    image = cv2.imread(str(path))
    assert image.std() > 20
    if os.environ.get("EFFTAM_UPDATE_IMAGES"):
        cv2.imwrite(str(DOCS / name), image, [cv2.IMWRITE_WEBP_QUALITY, 80])
    assert (DOCS / name).stat().st_size < 60_000


@pytest.fixture
def scene(serve):
    feed, steering = SceneFeed(), RecordedSteering()
    yield feed, steering, serve(feed, steering=steering).url
    feed.close()


@pytest.fixture
def opened(browser):
    pages = []

    def open_page(url, device):
        pages.append(page := browser.new_page(**device))
        page.goto(url)
        hands = Hands(page, (WIDTH, HEIGHT))
        hands.see()
        return page, hands

    yield open_page
    for page in pages:
        page.close()


def test_live_on_a_desktop(opened, scene, tmp_path):
    feed, _, url = scene
    page, hands = opened(url, DESKTOP)
    linger(1)
    hands.drag(400, 440, 560, 540)
    hands.wait_text("#state", "TRACKING")
    linger(4.0)
    feed.state, feed.reason = C, ""
    linger(1)
    feed.state = T
    linger(2.0)
    save(page, "operator-live.webp", tmp_path)


def test_drawing_on_a_phone(opened, scene, tmp_path):
    feed, _, url = scene
    page, hands = opened(url, PHONE)
    linger(1)
    page.tap("#freeze")
    hands.wait_mode("frozen")
    car = SCENE.car(feed.times[int(page.get_attribute("#view", "data-stamp"))])
    hands.touch("touchStart", (car.x - 6, car.y - 8))
    hands.touch("touchMove", (car.cx, car.cy))
    hands.touch("touchMove", (car.x1 + 8, car.y1 + 8))
    hands.wait_text("#left", "left")
    linger(0.5)
    save(page, "operator-phone.webp", tmp_path)
    hands.touch("touchEnd")


def test_the_gimbal_follows(opened, scene, tmp_path):
    _, steering, url = scene
    page, hands = opened(url, {"viewport": {"width": 1200, "height": 560}})
    hands.drag(400, 440, 560, 540)
    hands.wait_text("#state", "TRACKING")
    steering.say(enabled=True, phase="following")
    hands.wait_text("#steering-text", "GIMBAL FOLLOWING")
    linger(0.5)
    save(page, "operator-steering.webp", tmp_path)


def test_lost_in_sunlight_on_a_phone(opened, scene, tmp_path):
    feed, steering, url = scene
    page, hands = opened(url, PHONE)
    hands.touch("touchStart", (400, 440))
    hands.touch("touchMove", (560, 540))
    hands.touch("touchEnd")
    hands.wait_text("#state", "TRACKING")
    feed.state, feed.reason = L, "not seen for 2.1 s"
    steering.say(enabled=True, phase="holding", reason="the target is lost")
    hands.wait_text("#state", "LOST")
    hands.wait_text("#steering-text", "GIMBAL HOLDING")
    page.click("#sun")  # the buttons stand where they will stay
    page.wait_for_selector("body.sun")
    linger(2.0)
    save(page, "operator-phone-sun.webp", tmp_path)
