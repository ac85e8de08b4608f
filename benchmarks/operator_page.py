"""Figures of the operator's page over the whole chain, each beside its goal: about nine minutes.

Camera, tracker, page's node and a headless Chromium are processes of their own. Times from stamp to shown are
from the camera's stamp to the drawing on the canvas, in a Chromium on the same machine: its share of the
processor is a part of them. The tracker's time is its own, from an image's arrival to its box published; it
is compared in turns of some seconds, with nobody watching, with a page that is drawn on another machine (here
a client that only acknowledges), and with Chromium on this one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "test" / "operator"))
from barcode_feed import BarcodeFeed
from browser import CHROMIUM, FLAGS, Hands
from page_client import page as client_page
from thin_link import thin_link

from benchmarks.operator_chain import Chain, prepare_environment, wait
from efftam_ros.core.errors import InputError
from efftam_ros.core.types import TrackState
from efftam_ros.interop.messages import Outcome
from efftam_ros.operator.server import OperatorServer, serving
from efftam_ros.operator.settings import Settings
from efftam_ros.tools.common.outputs import write_text
from efftam_ros.tools.common.terminal import print_table

SIZE = (1280, 720)
# After a change the first moments tell of the change.
SETTLE_S = 1.0
LINK_SETTLE_S = 6.0
MISMATCH_FRAMES = 1000
DRAGS = 20
TURNS = 8
# How long a picture is held before something is drawn on it, s; the tracker keeps it for 8 s.
HELD_S = (0.3, 1.0, 1.8, 2.5, 3.3, 4.0, 4.8, 5.5, 6.3, 7.0)
PROBE = """
window.shown = []; window.widths = []; window.answers = [];
const make = window.createImageBitmap;
window.createImageBitmap = async (...given) => {
  const bitmap = await make(...given);
  window.widths.push(bitmap.width);
  return bitmap;
};
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
READ_BARCODES = """async ([left, top, scale, count]) => {
  const canvas = document.querySelector("#view"), context = canvas.getContext("2d");
  const screen = () => new Promise(requestAnimationFrame);
  const shown = () => {
    let stamp = 0n;
    const row = context.getImageData(left, Math.round(top + 8 * scale), Math.ceil(1024 * scale), 1).data;
    for (let i = 0; i < 64; i++) {
      if (row[4 * Math.round((16 * i + 8) * scale)] > 128) stamp |= 1n << BigInt(i);
    }
    return stamp.toString();
  };
  let last = "", seen = 0, wrong = 0;
  while (seen < count) {
    await screen();
    if (canvas.dataset.stamp === last) continue;
    last = canvas.dataset.stamp;
    seen += 1;
    if (shown() !== last) wrong += 1;
  }
  return wrong;
}"""


@dataclass(frozen=True)
class Figure:
    """``goal`` is the most allowed, or with ``at_least`` the least; None where there is none."""

    name: str
    unit: str
    goal: float | None
    measured: float
    at_least: bool = False

    @property
    def is_met(self) -> bool:
        if self.goal is None:
            return True
        return self.measured >= self.goal if self.at_least else self.measured <= self.goal


class Browser:
    """One page in a headless Chromium. ``port``: of the server or of a link to it."""

    def __init__(self, driver: Any) -> None:
        self._browser = driver.chromium.launch(executable_path=CHROMIUM, headless=True, args=FLAGS)
        self._page: Any = None

    def open(self, port: int, on_response: Callable[[Any], None] = lambda response: None) -> Any:
        self.leave()
        self._page = self._browser.new_page(viewport={"width": 1280, "height": 800})
        self._page.on("response", on_response)
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

    def watch(self, port: int, seconds: float, settle_s: float = SETTLE_S) -> tuple[list[float], list[int]]:
        """Ages of the pictures when drawn, ms, and their widths, px."""
        page = self.open(port)
        page.wait_for_timeout(1e3 * settle_s)
        page.evaluate("() => { shown.length = widths.length = 0; }")
        page.wait_for_timeout(1e3 * seconds)
        return page.evaluate("shown"), page.evaluate("widths")


@contextmanager
def socket_viewers(port: int, count: int) -> Iterator[None]:
    """So many pages that take pictures and draw none."""
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
        ages, _ = browser.watch(chain.port, seconds)
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
        left, top = hands.at(0, 0)
        place = page.locator("#view").bounding_box()
        corner = [round(left - place["x"]), top - place["y"], hands.scale]
        wrong = page.evaluate(READ_BARCODES, [*corner, MISMATCH_FRAMES])
        yield Figure(f"stamps that differ from the picture's, in {MISMATCH_FRAMES}", "", 0, wrong)
        browser.leave()


def network_figures(browser: Browser, seconds: float) -> Iterator[Figure]:
    with Chain(network=True) as chain:
        ages, _ = browser.watch(chain.port, seconds)
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
        said = f"tracker's frame time {name}: median {np.median(times):.1f} ms, {len(times)} images"
        print(said, flush=True)
    for viewer, goals, times in (
        ("with a viewer", (1.05, 1.1), elsewhere),
        ("with Chromium on the same processor", (None, None), here),
    ):
        for name, percent, goal in zip(("median", "p99"), (50, 99), goals, strict=True):
            ratio = float(np.percentile(times, percent) / np.percentile(alone, percent))
            yield Figure(f"tracker's frame time {viewer} / without: {name}", "", goal, ratio)


def turn(chain: Chain, seconds: float) -> list[float]:
    time.sleep(SETTLE_S)
    began_s = time.monotonic()
    time.sleep(seconds)
    return chain.taken_ms(began_s, time.monotonic())


def link_figures(browser: Browser, seconds: float) -> Iterator[Figure]:
    with Chain(network=False) as chain:
        for mbit in (10, 4):
            with thin_link(chain.port, mbit * 1e6, 0.02) as port:
                ages, widths = browser.watch(port, seconds, LINK_SETTLE_S)
                browser.leave()
            name = f"{mbit} Mbit/s, 20 ms"
            if mbit == 10:
                yield Figure(f"{name}: stamp to shown, p95", "ms", 200, float(np.percentile(ages, 95)))
            yield Figure(f"{name}: pictures shown", "Hz", 10, len(ages) / seconds, at_least=True)
            halves = float(np.mean([width < SIZE[0] for width in widths]))
            print(f"{name}: {100 * halves:.0f} % of the pictures at half size", flush=True)


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
    yield Figure("page's node, nobody watches", "% of a core", 1, none)


def lost_figures(browser: Browser, seconds: float) -> Iterator[Figure]:
    """A tracker that searches: of 30 images in a second it answers one, a second late."""
    with closing(BarcodeFeed(rate_hz=30.0, size=SIZE)) as feed:
        feed.state, feed.answer_every, feed.answer_late = TrackState.LOST, 30, 30
        with serving(OperatorServer(Settings(port=0), feed)) as server:
            ages, _ = browser.watch(server.port, seconds)
            browser.leave()
    yield Figure("LOST at 30 Hz: pictures shown", "Hz", 10, len(ages) / seconds, at_least=True)
    for name, percent in (("median", 50), ("p95", 95)):
        age_ms = float(np.percentile(ages, percent))
        yield Figure(f"an answer a second: age of the picture shown, {name}", "ms", 300, age_ms)


def frozen_figures(browser: Browser, seconds: float) -> Iterator[Figure]:
    """Pictures held for up to 7 s, then drawn on: the tracker must start on that very image."""
    elsewhere = 0
    with Chain(network=False) as chain:
        page = browser.open(chain.port)
        hands = Hands(page, SIZE)

        def came(before: int) -> bool:
            return len(chain.results) > before

        for held_s in HELD_S:
            page.focus("#view")
            hands.keys("Space")
            hands.wait_mode("frozen")
            stamp_ns, before = int(page.get_attribute("#view", "data-stamp")), len(chain.results)
            page.wait_for_timeout(1e3 * held_s)
            hands.drag(400, 300, 460, 340)
            wait(partial(came, before), "what became of the selection", 10.0)
            named_ns, outcome, note = chain.results[before]
            elsewhere += (named_ns, outcome, note) != (stamp_ns, Outcome.ACCEPTED, "")
            hands.wait_mode("live")
        browser.leave()
    yield Figure(f"selections on a held picture that start on another, of {len(HELD_S)}", "", 0, elsewhere)


def load_figures(browser: Browser, seconds: float) -> Iterator[Figure]:
    with Chain(network=False) as chain:
        sizes: list[int] = []
        browser.open(chain.port, lambda response: sizes.append(len(response.body())))
        browser.leave()
    yield Figure("first load", "kB", 100, sum(sizes) / 1e3)


MEASURE = {
    "null": null_figures,
    "network": network_figures,
    "links": link_figures,
    "cpu": cpu_figures,
    "lost": lost_figures,
    "frozen": frozen_figures,
    "load": load_figures,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=15.0, help="of each measurement (default 15)")
    parser.add_argument("--only", choices=MEASURE, action="append", help="may be repeated (default: all)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the figures for machines")


def run(args: argparse.Namespace) -> int:
    if not 1 <= args.seconds <= 600:
        raise InputError(f"--seconds is {args.seconds:g}; give 1 to 600")
    if CHROMIUM is None:
        raise InputError("there is no Chromium; apt-get install chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        raise InputError("there is no playwright; pip install playwright (the driver alone)") from None
    prepare_environment()
    figures: list[Figure] = []
    problems: list[str] = []
    with sync_playwright() as driver:
        browser = Browser(driver)
        for part in args.only or MEASURE:
            print(f"measuring: {part}", file=sys.stderr, flush=True)
            try:
                figures.extend(MEASURE[part](browser, args.seconds))  # those before a problem count
            except RuntimeError as error:
                problems.append(f"{part}: {error}")
        browser.close()
    rows = [(f.name, _goal(f), f"{f.measured:.3g} {f.unit}".rstrip(), _word(f)) for f in figures]
    title = f"{os.cpu_count()} processor cores, load {os.getloadavg()[0]:.1f}"
    print_table(("figure", "asked", "measured", ""), rows, title=title)
    for problem in problems:
        print(problem, file=sys.stderr)
    if args.json is not None:
        write_text(args.json, json.dumps([asdict(figure) for figure in figures], indent=1) + "\n")
    if problems:
        return 2
    return 0 if all(figure.is_met for figure in figures) else 1


def _goal(figure: Figure) -> str:
    if figure.goal is None:
        return ""
    return f"{'at least ' if figure.at_least else ''}{figure.goal:g} {figure.unit}".rstrip()


def _word(figure: Figure) -> str:
    return "" if figure.goal is None else "met" if figure.is_met else "missed"
