"""Times of the operator's page over the whole chain, each with its goal. Takes some minutes.

Camera, tracker, page's node and a headless Chromium run as separate processes.
Stamp to shown: time from the camera's stamp to the drawing on the canvas. Chromium runs on the same machine,
so its need of the processor is a part of these times.
Tracker's frame time: time from an image's arrival at the tracker to its published box. It is compared, in
turns of some seconds, without a page, with a page on another machine (simulated by a client that only
acknowledges frames), and with Chromium on this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.browser import CHROMIUM, FLAGS, Hands
from benchmarks.operator_chain import Chain, wait
from benchmarks.page_client import page as client_page
from efftam_ros.core.errors import InputError
from efftam_ros.tools.common.outputs import write_text
from efftam_ros.tools.common.terminal import print_table
from simulation import ros_environment

SIZE = (1280, 720)
# Time after a change of the setup in which nothing is measured, s.
SETTLE_S = 1.0
DRAGS = 20
TURNS = 8
PROBE = """
window.shown = []; window.answers = [];
let releasedMs = null;
addEventListener("pointerup", () => { releasedMs = performance.now(); }, true);
addEventListener("DOMContentLoaded", () => {
  const canvas = document.querySelector("#view");
  let stamp = "";
  new MutationObserver(() => {
    if (canvas.dataset.stamp !== stamp) {
      stamp = canvas.dataset.stamp;
      if (stamp) window.shown.push(Date.now() - Number(BigInt(stamp) / 1000n) / 1000);
    }
    if (releasedMs !== null && canvas.dataset.mode === "live") {
      window.answers.push(performance.now() - releasedMs);
      releasedMs = null;
    }
  }).observe(canvas, { attributes: true });
});
"""


@dataclass(frozen=True)
class Figure:
    """One measured value. ``goal``: largest allowed value; None: there is no goal."""

    name: str
    unit: str
    goal: float | None
    measured: float

    @property
    def is_met(self) -> bool:
        return self.goal is None or self.measured <= self.goal


class Browser:
    """A headless Chromium with at most one open page. ``driver``: the object of playwright."""

    def __init__(self, driver: Any) -> None:
        self._browser = driver.chromium.launch(executable_path=CHROMIUM, headless=True, args=FLAGS)
        self._page: Any = None

    def open(self, port: int) -> Any:
        self.leave()
        self._page = self._browser.new_page(viewport={"width": 1280, "height": 800})
        self._page.add_init_script(PROBE)
        self._page.goto(f"http://127.0.0.1:{port}/")
        Hands(self._page, SIZE).see()
        return self._page

    def leave(self) -> None:
        if self._page is not None:
            self._page.close()
            self._page = None

    def close(self) -> None:
        self._browser.close()

    def ages_ms(self, port: int, seconds: float) -> list[float]:
        """Return the ages, ms, at which pictures are drawn on the page, measured for ``seconds``."""
        page = self.open(port)
        page.wait_for_timeout(1e3 * SETTLE_S)
        page.evaluate("() => { shown.length = 0; }")
        page.wait_for_timeout(1e3 * seconds)
        return page.evaluate("shown")


@contextmanager
def socket_viewers(port: int, count: int) -> Iterator[None]:
    """Keep ``count`` pages open inside a ``with`` block, which receive pictures and do not draw them."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    open_pages = [client_page(f"http://127.0.0.1:{port}/") for _ in range(count)]

    def run(coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(30.0)

    try:
        for opened in open_pages:
            run(opened.__aenter__())
        yield
    finally:
        for opened in open_pages:
            run(opened.__aexit__(None, None, None))
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def null_figures(browser: Browser, seconds: float) -> Iterator[Figure]:
    with Chain(network=False) as chain:
        ages = browser.ages_ms(chain.port, seconds)
        yield Figure("stamp to shown, without network: median", "ms", 40, float(np.median(ages)))
        yield Figure("stamp to shown, without network: p95", "ms", 100, float(np.percentile(ages, 95)))
        page = browser.open(chain.port)
        hands = Hands(page, SIZE)

        def answered(before: int) -> bool:
            return len(page.evaluate("answers")) > before

        for i in range(DRAGS):
            x, y = 400 + 10 * i, 300
            hands.drag(x, y, x + 60, y + 40)
            wait(partial(answered, i), "the answer to a selection", 10.0)
            page.wait_for_timeout(300)
        answers = page.evaluate("answers")
        yield Figure("release of the button to answer seen: median", "ms", 100, float(np.median(answers)))
        yield Figure("release of the button to answer seen: largest", "ms", 100, max(answers))
        browser.leave()


def network_figures(browser: Browser, seconds: float) -> Iterator[Figure]:
    with Chain(network=True) as chain:
        ages = browser.ages_ms(chain.port, seconds)
        yield Figure("stamp to shown, shipped network: median", "ms", 80, float(np.median(ages)))
        browser.leave()
        alone: list[float] = []
        elsewhere: list[float] = []
        here: list[float] = []
        for _ in range(TURNS):
            alone += turn(chain, seconds / 3)
            with socket_viewers(chain.port, 1):
                elsewhere += turn(chain, seconds / 3)
            alone += turn(chain, seconds / 3)
            browser.open(chain.port)
            here += turn(chain, seconds / 3)
            browser.leave()
    for name, times in (("alone", alone), ("with a viewer", elsewhere), ("with Chromium", here)):
        line = f"tracker's frame time {name}: median {np.median(times):.1f} ms, {len(times)} images"
        print(line, flush=True)
    for viewer, goals, times in (
        ("with a viewer", (1.05, 1.1), elsewhere),
        ("with Chromium on the same processor", (None, None), here),
    ):
        for name, percent, goal in zip(("median", "p99"), (50, 99), goals, strict=True):
            ratio = float(np.percentile(times, percent) / np.percentile(alone, percent))
            yield Figure(f"tracker's frame time {viewer} / without: {name}", "", goal, ratio)


def turn(chain: Chain, seconds: float) -> list[float]:
    """Return the tracker's times, ms, for the images of the next ``seconds``, after `SETTLE_S`."""
    time.sleep(SETTLE_S)
    began_s = time.monotonic()
    time.sleep(seconds)
    return chain.taken_ms(began_s, time.monotonic())


def cpu_figures(browser: Browser, seconds: float) -> Iterator[Figure]:
    def share() -> float:
        time.sleep(SETTLE_S)
        began_s, used_s = time.monotonic(), chain.operator_cpu_s()
        time.sleep(seconds)
        return 100 * (chain.operator_cpu_s() - used_s) / (time.monotonic() - began_s)

    with Chain(network=False) as chain:
        none = share()
        with socket_viewers(chain.port, 1):
            one = share()
        with socket_viewers(chain.port, 3):
            three = share()
    yield Figure("page's node, one viewer", "% of a core", 20, one)
    yield Figure("page's node, each further viewer", "% of a core", 4, (three - one) / 2)
    yield Figure("page's node, no viewer", "% of a core", 1, none)


MEASURE = {"null": null_figures, "network": network_figures, "cpu": cpu_figures}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seconds", type=float, default=15.0, help="duration of each measurement (default 15)"
    )
    parser.add_argument("--only", choices=MEASURE, action="append", help="may be repeated (default: all)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")


def run(args: argparse.Namespace) -> int:
    if not 1 <= args.seconds <= 600:
        raise InputError(f"--seconds is {args.seconds:g}; give 1 to 600")
    if CHROMIUM is None:
        raise InputError("there is no Chromium; apt-get install chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        raise InputError("there is no playwright; pip install playwright (the driver alone)") from None
    os.environ.update(ros_environment())  # must be set before ROS is loaded
    figures: list[Figure] = []
    problems: list[str] = []
    with sync_playwright() as driver:
        browser = Browser(driver)
        for part in args.only or MEASURE:
            print(f"measuring: {part}", file=sys.stderr, flush=True)
            try:
                figures.extend(MEASURE[part](browser, args.seconds))  # figures made before a problem are kept
            except RuntimeError as error:
                problems.append(f"{part}: {error}")
        browser.close()
    rows = [
        (
            f.name,
            "" if f.goal is None else f"{f.goal:g} {f.unit}".rstrip(),
            f"{f.measured:.3g} {f.unit}".rstrip(),
            "" if f.goal is None else "met" if f.is_met else "missed",
        )
        for f in figures
    ]
    title = f"{os.cpu_count()} processor cores, load {os.getloadavg()[0]:.1f}"
    print_table(("figure", "goal", "measured", ""), rows, title=title)
    for problem in problems:
        print(problem, file=sys.stderr)
    if args.json is not None:
        write_text(args.json, json.dumps([asdict(figure) for figure in figures], indent=1) + "\n")
    if problems:
        return 2
    return 0 if all(figure.is_met for figure in figures) else 1
