"""Relays between page and server: one that lets through so many bits per second, with a delay each way (a
radio link), and one whose connections die without an end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator


class _Relay:
    def __init__(self, port: int, bits_per_s: float, delay_s: Callable[[], float]) -> None:
        self._port, self._bytes_per_s, self._delay_s = port, bits_per_s / 8, delay_s

    async def start(self) -> int:
        server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        return server.sockets[0].getsockname()[1]

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port, limit=16384)
        for end in (writer, far_writer):
            # Large buffers of the system would hide the link's thinness.
            end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16384)
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        free = loop.time()
        while data := await reader.read(4096):
            free = max(free, loop.time()) + len(data) / self._bytes_per_s
            loop.call_at(free + self._delay_s(), writer.write, data)
            await asyncio.sleep(max(0.0, free - loop.time()))
        writer.close()


async def _end_all() -> None:
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class DyingLink:
    """A relay to ``port``. `cut` stops all connections without an end that either side could see, as a
    gateway that forgot them does; after `reopen` who connects anew gets through. `heal` delivers what was
    held."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._flows: list[threading.Event] = []
        self._is_open = True
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._is_open = False
        for flow in self._flows:
            flow.clear()

    def reopen(self) -> None:
        self._is_open = True

    def heal(self) -> None:
        self._is_open = True
        for flow in self._flows:
            flow.set()

    def close(self) -> None:
        self._server.close()
        self.heal()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._server.accept()
                far = socket.create_connection(("127.0.0.1", self._to))
                flow = threading.Event()
                if self._is_open:
                    flow.set()
                self._flows.append(flow)
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=(*ends, flow), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, flow: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                flow.wait()
                sink.sendall(data)
            flow.wait()
            sink.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def thin_link(port: int, bits_per_s: float, delay_s: float | Callable[[], float]) -> Iterator[int]:
    """The port of a relay to ``port``, on a thread of its own. ``delay_s``: a function may change it."""
    delay = delay_s if callable(delay_s) else lambda: delay_s
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield asyncio.run_coroutine_threadsafe(_Relay(port, bits_per_s, delay).start(), loop).result()
    finally:
        asyncio.run_coroutine_threadsafe(_end_all(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
