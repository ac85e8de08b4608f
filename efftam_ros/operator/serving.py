"""Runs a page's server beside other work, on a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from efftam_ros.operator.server import OperatorServer


@contextmanager
def serving(server: OperatorServer, over: str = "") -> Iterator[OperatorServer]:
    """Serve on a thread inside a ``with`` block. Raises InputError at its start where the address can't be
    used. ``over``: what pages say after the block's end (see `OperatorServer.stop`), unless it raised."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="operator page", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result()
        said = ""
        try:
            yield server
            said = over
        finally:
            asyncio.run_coroutine_threadsafe(server.stop(said), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
