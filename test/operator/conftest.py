"""A running page for each test, and a client that speaks as the page does."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="the operator's page needs aiohttp: pip install efftam_ros[operator]")
sys.path.insert(0, str(Path(__file__).parent))

from barcode_feed import BarcodeFeed
from browser import Hands, chromium

from efftam_ros.operator.server import OperatorServer, serving
from efftam_ros.operator.settings import Settings

DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 360, "height": 740}


@pytest.fixture
def feed() -> Iterator[BarcodeFeed]:
    feed = BarcodeFeed()
    yield feed
    feed.close()


@pytest.fixture
def serve() -> Iterator[Callable[..., OperatorServer]]:
    """``serve(feed=..., port=..., ...)``: a server that runs until the test ends; settings by name."""
    with ExitStack() as stack:

        def start(feed: Any, steering: Any = None, **settings: Any) -> OperatorServer:
            server = OperatorServer(Settings(**{"port": 0, **settings}), feed, steering)
            return stack.enter_context(serving(server))

        yield start


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


@pytest.fixture
def open_page(browser):
    """``open_page(url, phone=False)``: Hands on a new page that shows a picture; errors of the page fail the
    test. ``script`` runs in the page before its own."""
    contexts, errors = [], []

    def open_(url, *, phone=False, wait=True, size=(640, 360), script=""):
        size_ = PHONE if phone else DESKTOP
        context = browser.new_context(
            viewport=size_, has_touch=phone, is_mobile=phone, device_scale_factor=2 if phone else 1
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda said: errors.append(said.text) if "Content Security" in said.text else None)
        page.add_init_script(script)
        page.goto(url)
        hands = Hands(page, size)
        if wait:
            hands.see()
        return hands

    yield open_
    for context in contexts:
        context.close()
    assert errors == []
