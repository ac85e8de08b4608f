"""An open page beside the middleware: the page's client on a thread, and the operator's node."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from level_node import Spinning
from ros_helpers import ROOT

sys.path.insert(0, str(Path(__file__).parents[1] / "operator"))

from benchmarks.browser import Hands, chromium
from benchmarks.page_client import PageClient, page

__all__ = ["Hands", "Page", "PageClient", "address_in", "chromium", "operator_command", "page"]


def operator_command(namespace: str, *ros_arguments: str) -> list[str]:
    """The command line of the operator on a free port with ROS arguments such as ``-p lease_s:=5.0``."""
    node = str(ROOT / "scripts" / "efftam_operator")
    return [sys.executable, node, "--ros-args", "-r", f"__ns:=/{namespace}", "-p", "port:=0", *ros_arguments]


def address_in(output: str) -> str:
    """The address that the operator printed; empty as long as it has not."""
    found = re.search(r"open (http\S+)\n", output)
    return found.group(1) if found else ""


class Operator(Spinning):
    """The operator's node in this process; ``url``: of its page."""

    def __init__(self, namespace: str, *ros_arguments: str) -> None:
        from efftam_operator.ros.node import OperatorNode

        arguments = ["--ros-args", "-p", "port:=0", *ros_arguments]
        with redirect_stdout(StringIO()) as printed:
            super().__init__(OperatorNode(namespace=namespace, cli_args=arguments))
        self.url = address_in(printed.getvalue())


class Page:
    """A page that stays open while the test goes on; what came is in ``frames`` and ``messages(op)``."""

    def __init__(self, url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._context = page(url)
        self._client: PageClient = self._run(self._context.__aenter__())

    def close(self) -> None:
        if self._thread.is_alive():
            self._run(self._context.__aexit__(None, None, None))
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    @property
    def frames(self) -> list[Any]:
        return self._client.frames

    @property
    def stamps(self) -> list[int]:
        """Of the pictures shown, ns."""
        return [frame.stamp_ns for frame in self.frames]

    def messages(self, op: str) -> list[dict[str, Any]]:
        return self._client.messages(op)

    def answer(self, id: str) -> dict[str, Any] | None:
        return next((m for m in self.messages("answer") if m["id"] == id), None)

    def target(self, stamp: int) -> dict[str, Any] | None:
        """What the page was told of the target in the image of ``stamp``."""
        tracks = [m for m in self.messages("track") if m["stamp"] == str(stamp)]
        return tracks[-1]["targets"][0] if tracks else None

    @property
    def status(self) -> dict[str, Any]:
        told = self.messages("status")
        return told[-1] if told else {}

    def wait(self, condition: Callable[[], Any], seconds: float = 20.0) -> None:
        """For what comes over the socket."""

        async def wait() -> None:
            await self._client.until(condition, seconds)

        asyncio.run_coroutine_threadsafe(wait(), self._loop).result(seconds + 5.0)

    def send(self, **message: Any) -> None:
        self._run(self._client.send(**message))

    def _run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(20.0)
