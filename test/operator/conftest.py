"""A running page for each test, and a client that speaks as the page does."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="the operator's page needs aiohttp: pip install efftam_ros[operator]")
sys.path.insert(0, str(Path(__file__).parent))

from barcode_feed import BarcodeFeed, RecordedSteering

from benchmarks.browser import Hands, chromium
from efftam_operator.server import OperatorServer, serving
from efftam_operator.settings import Settings

DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 360, "height": 740}


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Tests that talk to a server are coroutines."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    asyncio.run(pyfuncitem.obj(**given))
    return True


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


class Tabs:
    """Windows of one browser, used again by the next test: a new one costs three times as much processor time
    as a page in it. Each test's server is an origin of its own."""

    def __init__(self, browser: Any) -> None:
        self.errors: list[str] = []
        self._browser = browser
        self._free: dict[bool, list[Any]] = {False: [], True: []}

    def take(self, phone: bool) -> Any:
        """A page without content."""
        if self._free[phone]:
            return self._free[phone].pop()
        context = self._browser.new_context(
            viewport=PHONE if phone else DESKTOP,
            has_touch=phone,
            is_mobile=phone,
            device_scale_factor=2 if phone else 1,
        )
        page = context.new_page()
        page.set_default_timeout(30_000)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._on_console)
        return page

    def give_back(self, hands: Hands, phone: bool) -> None:
        """The hands are lifted, the page is left."""
        hands.lift()
        hands.page.set_viewport_size(PHONE if phone else DESKTOP)
        hands.page.goto("about:blank")
        self._free[phone].append(hands.page)

    def _on_console(self, said: Any) -> None:
        if "Content Security" in said.text:
            self.errors.append(said.text)


@pytest.fixture(scope="module")
def tabs(browser):
    return Tabs(browser)


@pytest.fixture
def open_page(tabs):
    """``open_page(url, phone=False)``: Hands on a new page that shows a picture; errors of the page fail the
    test."""
    opened = []

    def open_(url, *, phone=False, wait=True, size=(640, 360)):
        page = tabs.take(phone)
        hands = Hands(page, size)
        opened.append((hands, phone))
        page.goto(url)
        if wait:
            hands.see()
        return hands

    yield open_
    for hands, phone in opened:
        tabs.give_back(hands, phone)
    errors, tabs.errors[:] = [*tabs.errors], []
    assert errors == []


@pytest.fixture
def steering() -> RecordedSteering:
    """A gimbal on the page, for tests that ask for it."""
    return RecordedSteering()


def _hands(request, phone: bool) -> Hands:
    serve, feed, open_page = map(request.getfixturevalue, ("serve", "feed", "open_page"))
    gimbal = request.getfixturevalue("steering") if "steering" in request.fixturenames else None
    return open_page(serve(feed, steering=gimbal).url, phone=phone)


@pytest.fixture
def hands(request) -> Hands:
    """On a page that shows the pictures of `feed`, with a mouse."""
    return _hands(request, phone=False)


@pytest.fixture
def phone(request) -> Hands:
    """The same with a thumb."""
    return _hands(request, phone=True)
