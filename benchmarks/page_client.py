"""A client of the page's server, which exchanges messages over a real web socket as the page does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiohttp
import cv2
import numpy as np

from efftam_operator import wire


class SeenFrame(NamedTuple):
    """A received frame: the fields of its header, and its JPEG."""

    stamp_ns: int
    sent_ns: int
    seq: int
    size: tuple[int, int]  # width and height of the camera's image, px; (0, 0): as the JPEG's
    payload: bytes

    @property
    def width(self) -> int:
        """Width of the JPEG, px."""
        pixels = cv2.imdecode(np.frombuffer(self.payload, np.uint8), cv2.IMREAD_COLOR)
        return int(np.asarray(pixels).shape[1])

    @property
    def is_small(self) -> bool:
        return self.size[0] > self.width


class PageClient:
    """A connected client. ``order``: received frames and messages, in order of arrival.

    ``acknowledges``: whether every received frame is acknowledged at once.
    """

    def __init__(self, socket: Any, acknowledges: bool) -> None:
        self.socket, self.acknowledges = socket, acknowledges
        self.order: list[SeenFrame | dict[str, Any]] = []
        self._news = asyncio.Event()

    @property
    def frames(self) -> list[SeenFrame]:
        return [entry for entry in self.order if isinstance(entry, SeenFrame)]

    def messages(self, op: str) -> list[dict[str, Any]]:
        return [entry for entry in self.order if isinstance(entry, dict) and entry["op"] == op]

    async def send(self, **message: Any) -> None:
        await self.socket.send_str(json.dumps(message))

    async def until(self, condition: Callable[[], Any], seconds: float = 10.0) -> Any:
        """Wait until ``condition()`` is true, and return its value.

        The condition is checked after each message. Raises asyncio.TimeoutError after ``seconds``.
        """
        end = asyncio.get_running_loop().time() + seconds
        while not (value := condition()):
            self._news.clear()
            left = end - asyncio.get_running_loop().time()
            await asyncio.wait_for(self._news.wait(), max(0.0, left))
        return value

    async def answer(self, id: str) -> dict[str, Any]:
        """Wait for the answer to the command with this id."""
        return await self.until(lambda: next((m for m in self.messages("answer") if m["id"] == id), None))

    async def listen(self) -> None:
        """Receive messages until the socket is closed."""
        async for message in self.socket:
            if message.type is aiohttp.WSMsgType.BINARY:
                magic, version, codec, *size, stamp, sent, seq = wire.HEADER.unpack_from(message.data)
                assert (magic, version, codec) == (b"EFTM", 1, 1)
                self.order.append(SeenFrame(stamp, sent, seq, tuple(size), message.data[wire.HEADER.size :]))
                if self.acknowledges:
                    await self.send(op="ack", seq=seq)
            else:
                self.order.append(json.loads(message.data))
            self._news.set()
        self._news.set()


@asynccontextmanager
async def page(
    url: str, *, token: str = "", acknowledges: bool = True, hello: bool = True, **headers: str
) -> AsyncIterator[PageClient]:
    """Connect a client to the server at ``url`` inside an ``async with`` block.

    ``token``: sent with the hello; ``hello``: whether a hello is sent; ``headers``: HTTP headers that replace
    Host or Origin.
    """
    base = url.split("#")[0]
    sent = {"Origin": base.rstrip("/"), **headers}
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(base + "ws", headers=sent, max_msg_size=0) as socket,
    ):
        client = PageClient(socket, acknowledges)
        if hello:
            await client.send(op="hello", token=token)
        task = asyncio.create_task(client.listen())
        try:
            yield client
        finally:
            task.cancel()
