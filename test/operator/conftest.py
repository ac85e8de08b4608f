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

from efftam_ros.operator.server import OperatorServer
from efftam_ros.operator.serving import serving
from efftam_ros.operator.settings import Settings


@pytest.fixture
def feed() -> Iterator[BarcodeFeed]:
    feed = BarcodeFeed()
    yield feed
    feed.close()


@pytest.fixture
def serve() -> Iterator[Callable[..., OperatorServer]]:
    """``serve(feed=..., port=..., ...)``: a server that runs until the test ends; settings by name."""
    with ExitStack() as stack:

        def start(
            feed: Any = None, recording: Any = None, steering: Any = None, **settings: Any
        ) -> OperatorServer:
            server = OperatorServer(
                Settings(**{"port": 0, **settings}), feed=feed, recording=recording, steering=steering
            )
            return stack.enter_context(serving(server))

        yield start
