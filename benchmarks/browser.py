"""Starts a real Chromium for the operator's page, and imitates the input of a person at the page."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def chromium() -> Iterator[Any]:
    """Run the system's Chromium, headless and with a new profile, inside a ``with`` block.

    Skips the calling test if Chromium or playwright is not installed.
    """
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="pip install playwright (the driver alone)"
    )
    if CHROMIUM is None:
        pytest.skip("no Chromium; run: sudo apt-get install -y chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, headless=True, args=FLAGS)
        yield browser
        browser.close()


class Hands:
    """Imitates a person at one page, by mouse, fingers and keys.

    Places are in px of the camera's image, whose size ``image`` is (width, height).
    """

    def __init__(self, page: Any, image: tuple[int, int] = (640, 360), canvas: str = "#view") -> None:
        self.page, self.image, self.canvas = page, image, canvas
        self._touch: Any = None
        self._is_touching = False

    def see(self) -> None:
        """Wait for the first picture."""
        self.page.wait_for_selector(f"{self.canvas}[data-stamp]:not([data-stamp=''])")

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Return the page's coordinates, CSS px, of a place in the image, as the picture is shown now."""
        box = self.page.locator(self.canvas).bounding_box()
        left, top, scale = map(float, self.page.get_attribute(self.canvas, "data-place").split())
        return box["x"] + left + x * scale, box["y"] + top + y * scale

    @property
    def scale(self) -> float:
        """CSS px of the page per image px."""
        return (self.at(100, 0)[0] - self.at(0, 0)[0]) / 100

    def drag(self, x0: float, y0: float, x1: float, y1: float) -> None:
        mouse = self.page.mouse
        mouse.move(*self.at(x0, y0))
        mouse.down()
        mouse.move(*self.at((x0 + x1) / 2, (y0 + y1) / 2))
        mouse.move(*self.at(x1, y1))
        mouse.up()

    def touch(self, kind: str, *points: tuple[float, float], at_s: float | None = None) -> None:
        """Send a touch event with fingers at these image px; ``kind``: touchStart, touchMove or touchEnd.

        ``at_s``: time of the event, s since 1970; None: now."""
        if self._touch is None:
            self._touch = self.page.context.new_cdp_session(self.page)
        self._is_touching = kind != "touchEnd"
        places = [self.at(*point) for point in points]
        event = {"type": kind, "touchPoints": [{"x": x, "y": y, "id": i} for i, (x, y) in enumerate(places)]}
        self._touch.send("Input.dispatchTouchEvent", event | ({} if at_s is None else {"timestamp": at_s}))

    def lift(self) -> None:
        """Release the mouse button and all fingers."""
        self.page.mouse.up()
        if self._is_touching:
            self.touch("touchEnd")
        if self._touch is not None:
            self._touch.detach()

    def tap(self, x: float, y: float) -> None:
        """Tap for 50 ms, also on a busy computer: a longer touch is another gesture."""
        began_s = time.time()
        self.touch("touchStart", (x, y), at_s=began_s)
        self.touch("touchEnd", at_s=began_s + 0.05)

    def keys(self, *names: str) -> None:
        for name in names:
            self.page.keyboard.press(name)

    @property
    def mode(self) -> str:
        return self.page.get_attribute(self.canvas, "data-mode")

    def wait_mode(self, mode: str) -> None:
        self.page.wait_for_selector(f"{self.canvas}[data-mode={mode}]")

    def tool(self, name: str) -> None:
        """Press the button with the id ``name`` in the drawer "More"; the drawer is closed afterwards."""
        if not self.page.is_visible("#drawer"):
            self.page.click("#more")
        self.page.click(f"#{name}")
        if self.page.is_visible("#drawer"):
            self.page.click("#more")

    def wait_text(self, selector: str, text: str) -> None:
        self.page.locator(selector).filter(has_text=text).first.wait_for(state="attached")

    def see_newer(self, stamp_ns: int) -> None:
        """Wait until the page shows a picture that is newer than the one of this stamp."""
        self.page.wait_for_function(
            "([selector, stamp]) => BigInt(document.querySelector(selector).dataset.stamp) > BigInt(stamp)",
            arg=[self.canvas, str(stamp_ns)],
        )

    def pixels(self, *places: tuple[float, float]) -> list[tuple[int, int, int]]:
        """Return the colours (red, green, blue) of the canvas at places in the image."""
        colours = self.page.evaluate(
            """([selector, points]) => {
                const canvas = document.querySelector(selector), context = canvas.getContext("2d");
                const [left, top, scale] = canvas.dataset.place.split(" ").map(Number);
                return points.map(([x, y]) => [...context.getImageData(
                    (left + x * scale) * devicePixelRatio, (top + y * scale) * devicePixelRatio, 1, 1).data]);
            }""",
            [self.canvas, places],
        )
        return [(r, g, b) for r, g, b, _ in colours]


def until(condition, seconds=30.0):
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)
    return value


def one_selection(feed):
    until(lambda: feed.selections)
    assert len(feed.selections) == 1
    return feed.selections[0]
