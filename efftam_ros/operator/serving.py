"""Runs a page's server beside other work: on a thread of its own, or until Ctrl-C."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from efftam_ros.operator.server import OperatorServer


@contextmanager
def serving(server: OperatorServer) -> Iterator[OperatorServer]:
    """Serve on a thread inside a ``with`` block. Raises InputError at its start where the address can't be
    used."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="operator page", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result()
        try:
            yield server
        finally:
            asyncio.run_coroutine_threadsafe(server.stop(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def serve_until_stopped(server: OperatorServer, tell: Callable[[str], object] = lambda url: None) -> None:
    """Serve until Ctrl-C, which ends it in order and is raised (KeyboardInterrupt). ``tell`` is given the
    page's address once it can be opened."""
    with serving(server):
        tell(server.url)
        threading.Event().wait()
