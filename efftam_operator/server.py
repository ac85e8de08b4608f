"""The page's HTTP server: serves the page's files, `/health`, and one web socket for each open page."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import ssl
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from aiohttp import WSCloseCode, WSMsgType, web

from efftam_operator import wire
from efftam_operator.commands import Commands
from efftam_operator.feed import CommandAnswer, Feed, Follower, Sink, Steerer
from efftam_operator.hub import LOG, Hub
from efftam_operator.settings import SECURITY_HEADERS, Access, Settings
from efftam_operator.viewer import Viewer
from efftam_ros.core.errors import InputError, one_line
from efftam_ros.images.palette import EDGE_RGB, STATE_STYLES, TARGET_RGB

WEB = Path(__file__).parent / "web"
CONTENT_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
HELLO_S = 5.0
# A *stranger* is a connection that has not been admitted as a page. There may be MAX_STRANGERS of them, and
# each must send a whole request within STRANGER_S seconds. So strangers can't exhaust memory or file
# descriptors, and they take no page's place among `most_viewers`.
MAX_STRANGERS, STRANGER_S = 128, 10.0
# Refused requests, and errors of the event loop, are each logged at most once in this time, s.
LOG_S = 10.0
# Longest wait for an unresponsive page when the server ends, s.
CLOSE_S = 1.0
STATUS_S = 1.0
# Pause before a task that failed is started again, s.
RESTART_S = 0.1
MAX_REFUSED = 20
# Close codes of web sockets, in the range 4000 to 4999 that is free for applications.
CLOSED_OVER = 4000
CLOSED_REFUSED, CLOSED_MESSAGES, CLOSED_FULL, CLOSED_LATE = 4401, 4400, 4429, 4408
# A message that was delayed by more than this is not carried out, s. By then the page has shown the operator
# that there is no link, and the operator may have acted differently since.
LATE_S = 5.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class OperatorServer:
    """Serves the page of one feed.

    `sink`, `url`, `urls` and `ask_health` may be used from any thread, all other methods only on one event
    loop's thread.

    ``steering``: switches whether the gimbal is steered by the target; None: there is no gimbal.
    ``following``: switches whether the autopilot receives the target's position; None: there is no autopilot.
    """

    def __init__(
        self,
        settings: Settings,
        feed: Feed,
        steering: Steerer | None = None,
        following: Follower | None = None,
    ) -> None:
        self.settings = settings
        self.access = Access(settings.address, settings.token, settings.hosts)
        self._feed, self._steering, self._following = feed, steering, following
        self._hub = Hub(settings)
        self.faults = self._hub.faults
        self._commands = Commands(feed, steering, self._hub, settings, following)
        self._files = _page_files()
        self._numbers = itertools.count(1)
        self._runner: web.AppRunner | None = None
        self._tasks: list[asyncio.Task[None]] = []
        # Connections that are not admitted as a page, each with the monotonic time of its last request (or of
        # its opening), in order of opening.
        self._strangers: dict[Any, float] = {}
        self._refused_s = float("-inf")  # monotonic time at which a refused request was last logged
        self._listener: asyncio.Server | None = None
        self.port = settings.port

    @property
    def sink(self) -> Sink:
        return self._hub.report

    @property
    def url(self) -> str:
        """The page's first URL, with the token if there is one. Valid once the server runs."""
        return self.urls[0]

    @property
    def urls(self) -> list[str]:
        """The page's URLs, one for each address of this computer if the server listens on every address."""
        return self.access.urls(self.port, "https" if self.settings.https else "http")

    def health(self) -> dict[str, Any]:
        """Return the state of camera, tracker and server, for `/health` and diagnostics."""
        holder = self._commands.seat.holder(time.monotonic())
        return {"operator": holder, **self._hub.status()}

    def ask_health(self, use: Callable[[dict[str, Any]], None]) -> None:
        """Call ``use`` with the result of `health` on the event loop's thread; callable from any thread."""
        self._hub.post(lambda: use(self.health()))

    async def start(self) -> None:
        """Start to listen. Raises InputError if the address or the certificate can't be used."""
        settings = self.settings
        app = web.Application(middlewares=[self._guard], client_max_size=settings.largest_message)
        app.router.add_get("/", self._file)
        app.router.add_get("/static/{name}", self._file)
        app.router.add_get("/health", self._health)
        app.router.add_get("/ws", self._socket)
        self._runner = web.AppRunner(app, access_log=None, keepalive_timeout=STRANGER_S)
        await self._runner.setup()
        loop, tls = asyncio.get_running_loop(), self._tls()
        try:
            self._listener = await loop.create_server(
                self._connect,
                settings.address,
                settings.port,
                ssl=tls,
                ssl_handshake_timeout=None if tls is None else HELLO_S,
            )
        except OSError as error:
            await self._runner.cleanup()
            raise InputError(
                f"the server can't listen on port {settings.port} of {settings.address} ({error.strerror}); "
                "choose another port or end the program that uses this port"
            ) from None
        self.port = self._listener.sockets[0].getsockname()[1]
        self._hub.attach(loop)
        self._tasks = [
            asyncio.create_task(self._supervise(name, work))
            for name, work in (("pictures", self._hub.send_frames), ("the seat", self._tick))
        ]
        self._feed.start(self.sink)
        if self._steering is not None:
            self._steering.start(self.sink)
        if self._following is not None:
            self._following.start(self.sink)

    async def stop(self, over: str = "") -> None:
        """Stop serving.

        ``over``: line that the pages show from now on; they first receive the last picture. "": the pages
        show that there is no link.
        """
        if over:
            self._hub.send_to_all({"op": "over", "message": over})
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._hub.show_last(), CLOSE_S)
        if self._listener is not None:
            self._listener.close()
        code, text = (CLOSED_OVER, "over") if over else (1001, "server ends")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        closing = [viewer.socket.close(code=code, message=text.encode()) for viewer in self._hub.viewers]
        await asyncio.gather(*closing, return_exceptions=True)
        self._hub.close()
        if self._runner is not None:
            await self._runner.cleanup()

    def _tls(self) -> ssl.SSLContext | None:
        if not self.settings.https:
            return None
        certificate, key = self.settings.https
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(certificate, key)
        except ssl.SSLError as error:
            raise InputError(
                f"{certificate} with {key} can't be used ({error.reason}); "
                "give PEM files of a certificate and of its own key"
            ) from None
        return context

    async def _supervise(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run ``work`` for ever: after an unforeseen error it is called again.

        ``name``: the name of the task in the log.
        """
        while True:
            try:
                await work()
            except Exception as error:
                self.faults.add(name, error)
            await asyncio.sleep(RESTART_S)

    async def _tick(self) -> None:
        while True:
            self._commands.watch_seat()
            self._drop_strangers()
            # Sent even if nothing has changed: a page that receives nothing reports that there is no link.
            self._hub.send_to_all(self._hub.status_message())
            await asyncio.sleep(STATUS_S)

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        refusal = self.access.host_refusal(request.headers)
        if request.protocol in self._strangers:
            self._strangers[request.protocol] = time.monotonic()
        if refusal:
            self._log_refusal(refusal)
            return web.Response(status=421, text=refusal + "\n", headers=SECURITY_HEADERS)
        return await handler(request)

    def _log_refusal(self, refusal: str) -> None:
        """Log a refusal, at most one every `LOG_S`: anybody in the network could fill the log by requests."""
        now_s = time.monotonic()
        if now_s - self._refused_s >= LOG_S:
            self._refused_s = now_s
            LOG.warning("a request was refused: %s", one_line(refusal))

    async def _file(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info.get("name", "index.html")
        body = self._files.get(name)
        if body is None:
            return web.Response(status=404, text="no such file\n", headers=SECURITY_HEADERS)
        kind = CONTENT_TYPES[Path(name).suffix]
        response = web.Response(body=body, content_type=kind, charset="utf-8", headers=SECURITY_HEADERS)
        response.enable_compression()
        return response

    async def _health(self, request: web.Request) -> web.StreamResponse:
        body = wire.dumps(self.health())
        return web.Response(text=body, content_type="application/json", headers=SECURITY_HEADERS)

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        refusal = self.access.origin_refusal(request.headers)
        if refusal:
            self._log_refusal(refusal)
            return web.Response(status=403, text=refusal + "\n", headers=SECURITY_HEADERS)
        socket = web.WebSocketResponse(
            timeout=CLOSE_S, heartbeat=20.0, max_msg_size=self.settings.largest_message, compress=False
        )
        await socket.prepare(request)
        admitted = await self._admitted(socket)
        pages = len(self._hub.viewers)
        if admitted and pages >= self.settings.most_viewers:
            await _turn_away(socket, CLOSED_FULL, f"{pages} pages are open already; close one")
        elif admitted:
            self._strangers.pop(request.protocol, None)
            await self._view(socket, request.remote or "unknown")
        return socket

    def _connect(self) -> asyncio.Protocol:
        assert self._runner is not None
        assert self._runner.server is not None
        self._drop_strangers()
        connection = self._runner.server()
        self._strangers[connection] = time.monotonic()
        return connection

    def _drop_strangers(self) -> None:
        """Close strangers (connections not admitted as a page) that are too slow or too many.

        A stranger is too slow if it sends no request within `STRANGER_S`. While there are more than
        `MAX_STRANGERS`, the oldest connection of the address with the most connections is closed.
        """
        now_s = time.monotonic()
        for connection, asked_s in list(self._strangers.items()):
            if now_s - asked_s > STRANGER_S and connection.transport is not None:
                connection.transport.abort()
            if now_s - asked_s > 1.0 and connection.transport is None:
                del self._strangers[connection]  # the connection has ended
        open_ = [c for c in self._strangers if c.transport is not None]
        while open_ and len(self._strangers) > MAX_STRANGERS:
            addresses = [c.transport.get_extra_info("peername", ("",))[0] for c in open_]
            most = Counter(addresses).most_common(1)[0][0]
            connection = open_.pop(addresses.index(most))
            del self._strangers[connection]
            connection.transport.abort()

    async def _admitted(self, socket: web.WebSocketResponse) -> bool:
        """Return whether the first message is `hello` with the right token and arrives within `HELLO_S`.

        Otherwise the socket is closed.
        """
        try:
            first = wire.parse(await socket.receive_str(timeout=HELLO_S))
            refusal = "the first message of a page must be hello; reload the page"
            if first.op == "hello":
                refusal = self.access.token_refusal(first.token)
        except wire.MessageError as refused:
            refusal = str(refused)
        except (TypeError, asyncio.TimeoutError):
            refusal = f"the page sent no hello within {HELLO_S:g} s; reload it"
        if refusal:
            await _turn_away(socket, CLOSED_REFUSED, refusal)
        return not refusal

    async def _view(self, socket: web.WebSocketResponse, remote: str) -> None:
        viewer = Viewer(socket, f"page {next(self._numbers)} ({remote})", self.settings)
        viewer.send(
            {
                "op": "hello",
                "version": wire.VERSION,
                "name": viewer.name,
                "role": self._commands.joined(viewer),
                "selections_per_s": self.settings.selections_per_s,
            }
        )
        holder = self._commands.seat.holder(time.monotonic())
        viewer.send({"op": "seat", "holder": holder})
        self._hub.join(viewer)
        self._watch()
        sender = asyncio.create_task(self._send(viewer))
        try:
            await self._listen(viewer)
        finally:
            sender.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                await sender
            self._hub.viewers.remove(viewer)
            self._commands.left(viewer)
            self._watch()

    async def _send(self, viewer: Viewer) -> None:
        """Send the page's queued messages until its link ends.

        After an unforeseen error the socket is closed; the page then opens another.
        """
        try:
            await viewer.send_waiting()
        except ConnectionError:
            raise
        except Exception as error:
            self.faults.add("sending", error)
            await viewer.socket.close(code=WSCloseCode.INTERNAL_ERROR)

    def _watch(self) -> None:
        self._feed.watch(self._hub.watch())

    async def _listen(self, viewer: Viewer) -> None:
        async for message in viewer.socket:
            refusal = ""
            if not viewer.messages.allows(time.monotonic()):
                refusal = f"the page sent more than {self.settings.messages_per_s:g} messages in a second"
            elif message.type is not WSMsgType.TEXT:
                refusal = "the page sent binary data; send text"
            else:
                parsed = wire.Message("")
                try:
                    parsed = wire.parse(message.data)
                    if viewer.lateness.late_s(parsed.sent_ms, time.monotonic()) > LATE_S:
                        await viewer.socket.close(code=CLOSED_LATE, message=b"the link stood still")
                        return
                    self._handle(viewer, parsed)
                except wire.MessageError as refused:
                    refusal = str(refused)
                    self._commands.answer(viewer, refused.id, CommandAnswer(False, refusal))
                except Exception as error:
                    text = self.faults.add(f"the command {parsed.op}", error)
                    self._commands.answer(viewer, parsed.id, CommandAnswer(False, text))
            if refusal:
                viewer.refused += 1
                if viewer.refused >= MAX_REFUSED:
                    await _turn_away(viewer.socket, CLOSED_MESSAGES, refusal)
                    return

    def _handle(self, viewer: Viewer, message: wire.Message) -> None:
        self._commands.on_message(viewer)
        match message.op:
            case "ack":
                self._hub.acknowledged(viewer, message.seq)
            case "ping":
                viewer.send({"op": "pong", "t": message.sent_ms, "server_ns": str(time.time_ns())})
            case "whole":
                self._hub.want(viewer, message.stamp_ns)
            case "watch":
                viewer.greeted()
                viewer.is_hidden = message.action == "hide"
                self._watch()
            case "hello":
                raise wire.MessageError("hello was already received")
            case _:
                self._commands.carry_out(viewer, message)


@contextlib.contextmanager
def serving(server: OperatorServer, over: str = "") -> Iterator[OperatorServer]:
    """Run the server on a thread of its own inside a ``with`` block.

    Raises InputError at the start of the block if the address or the certificate can't be used. ``over``:
    line that the pages show after the end of the block (see `OperatorServer.stop`), unless the block raised.
    """
    loop = asyncio.new_event_loop()
    logged_s = float("-inf")

    def log_sometimes(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal logged_s
        error = context.get("exception")
        if error is not None and not isinstance(error, OSError):  # an OSError is a fault of the network
            server.faults.add("the server", error)
            return
        if time.monotonic() - logged_s >= LOG_S:
            logged_s = time.monotonic()
            loop.default_exception_handler(context)

    loop.set_exception_handler(log_sometimes)
    thread = threading.Thread(target=loop.run_forever, name="operator page", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result()
        farewell = ""
        try:
            yield server
            farewell = over
        finally:
            asyncio.run_coroutine_threadsafe(server.stop(farewell), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _turn_away(socket: web.WebSocketResponse, code: int, reason: str) -> None:
    with contextlib.suppress(ConnectionError):
        await socket.send_str(wire.dumps({"op": "refused", "message": reason}))
        # A close reason holds at most 123 bytes.
        await socket.close(code=code, message=reason.encode()[:120])


def _page_files() -> dict[str, bytes]:
    """Return the page's files by name.

    `palette.js` is made from the palette of the tracker's overlay, so that both use the same colours.
    """
    files = {path.name: path.read_bytes() for path in WEB.iterdir() if path.suffix in CONTENT_TYPES}
    styles = {
        state.name: {"colour": style.hex, "line": style.line, "frame": style.frame}
        for state, style in STATE_STYLES.items()
    }
    edge, *targets = ("#{:02x}{:02x}{:02x}".format(*rgb) for rgb in (EDGE_RGB, *TARGET_RGB))
    constants = {"STATES": styles, "EDGE": edge, "TARGETS": targets}
    lines = [f"export const {name} = {json.dumps(value)};\n" for name, value in constants.items()]
    files["palette.js"] = "".join(lines).encode()
    return files
