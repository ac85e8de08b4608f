"""The links over TCP: one connects to a port, the other listens at a port."""

from __future__ import annotations

import contextlib
import errno
import itertools
import math
import os
import socket
from collections.abc import Callable
from typing import Any

from efftam_flight.mavlink.links.connection import (
    AT_PRESENT,
    MAX_PEERS,
    MAX_STALL_S,
    READ_SIZE,
    RETRY_S,
    STALLED_S,
    Connection,
    Piece,
)
from efftam_flight.mavlink.links.frame_queue import FrameQueue
from efftam_flight.mavlink.links.udp import MISTAKES, PORT_TAKEN, REMEDY

# An attempt to connect that gets no answer is repeated after this time, s. The operating system itself would
# repeat it more and more rarely.
CALL_S = 3.0
NOT_READ = "check that the program at the other end runs, and the link's bandwidth"


class _Stream:
    """One TCP connection. The other end may not have accepted it yet.

    ``ended``: the error that ended the connection, a ConnectionError if the other end closed it; None before.
    Raises OSError if the socket's options can't be set.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.queue = FrameQueue()
        self.ended: OSError | None = None
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def is_answered(self) -> bool:
        try:
            self.socket.getpeername()
        except OSError:
            return False
        return True

    def receive(self) -> bytes:
        data = bytearray()
        while self.ended is None and len(data) < READ_SIZE:
            try:
                part = self.socket.recv(READ_SIZE)
            except OSError as error:
                if error.errno not in AT_PRESENT:
                    self.ended = error
                break
            if not part:
                self.ended = ConnectionError(errno.ECONNRESET, "the other end closed the connection")
            data += part
        return bytes(data)

    def flush(self, now_s: float) -> None:
        """Send as many waiting frames as the connection accepts now."""
        if self.ended is not None:
            return
        try:
            self.queue.write(self.socket.send, now_s)
        except OSError as error:
            if error.errno not in AT_PRESENT:
                self.ended = error
        if self.queue.stalled_s(now_s) > MAX_STALL_S:
            self.ended = TimeoutError(errno.ETIMEDOUT, "the other end reads nothing")

    def send(self, data: bytes, now_s: float) -> None:
        self.queue.put(data, now_s)
        self.flush(now_s)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.close()


class Tcp(Connection):
    """Connects to a TCP port, and connects again whenever the connection has ended.

    The constructor resolves the host's name, which blocks. It raises OSError if the name is unknown.
    """

    def __init__(self, address: str, place: tuple[str, int], clock: Callable[[], float]) -> None:
        super().__init__(address, clock)
        try:
            found = socket.getaddrinfo(*place, type=socket.SOCK_STREAM)
        except OSError as error:
            raise OSError(f"{address}: {error.strerror or error}; check the host's name") from error
        # Each attempt uses the next address. IPv4 comes first, because simulators listen there.
        found.sort(key=lambda entry: entry[0] != socket.AF_INET)
        self._places = itertools.cycle([(entry[0], entry[4]) for entry in found])
        self._stream: _Stream | None = None
        self._calls = 0
        self._called_s = -math.inf
        self._open()

    def _open(self) -> _Stream | None:
        """Return the present connection, None if there is none. Connect again if the last connection ended,
        or got no answer for `CALL_S`."""
        stream, waited_s = self._stream, self._clock() - self._called_s
        if stream is not None and stream.ended is not None:
            self._end(stream.ended)
        elif stream is not None and waited_s >= CALL_S and not stream.is_answered:
            self._end(TimeoutError(errno.ETIMEDOUT, "no answer"))
        if self._stream is None and waited_s >= RETRY_S:
            self._call()
        return self._stream

    def _call(self) -> None:
        self._called_s = self._clock()
        self._calls += 1
        family, place = next(self._places)
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            self._failed(error, REMEDY)
            return
        try:
            self._stream = _Stream(sock)
            error_number = sock.connect_ex(place)
            if error_number not in (0, errno.EINPROGRESS, errno.ECONNREFUSED):
                raise OSError(error_number, os.strerror(error_number))
        except OSError as error:
            self._stream = None
            with contextlib.suppress(OSError):
                sock.close()
            self._failed(error, REMEDY)

    def _end(self, error: OSError) -> None:
        assert self._stream is not None
        self.dropped += self._stream.queue.dropped
        self._stream.close()
        self._stream = None
        if error.errno == errno.ECONNREFUSED:  # no fault: the program at the other end has not started yet
            self.errors += 1
        else:
            self._failed(error, REMEDY)

    def receive(self) -> list[Piece]:
        self._recover()
        stream = self._open()
        if stream is None:
            return []
        data = stream.receive()
        stream.flush(self._clock())
        if stream.queue.stalled_s(self._clock()) > STALLED_S:
            self._stalled(NOT_READ)
        return [(str(self._calls), data)] if data else []

    def send(self, data: bytes) -> None:
        stream = self._open()
        # Nothing is queued before the other end has accepted the connection: the data would be old by then.
        if stream is not None and stream.is_answered:
            stream.send(data, self._clock())

    def files(self) -> list[Any]:
        return [] if self._stream is None or not self._stream.is_answered else [self._stream.socket]

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()


class TcpIn(Connection):
    """Listens at a TCP port for up to eight peers. Raises OSError if the port is in use or not permitted, or
    if the host's name is unknown."""

    def __init__(self, address: str, place: tuple[str, int], clock: Callable[[], float]) -> None:
        super().__init__(address, clock)
        self._place = place
        self._server: socket.socket | None = None
        self._opened_s = self._refused_s = -math.inf
        self._streams: dict[str, _Stream] = {}
        self._accepted = 0
        try:
            self._open()
        except OSError as error:
            if error.errno in MISTAKES or isinstance(error, socket.gaierror):
                raise OSError(f"{address}: {error.strerror or error}; {PORT_TAKEN}") from error
            self._failed(error, REMEDY)

    def _open(self) -> None:
        self._opened_s = self._clock()
        server = socket.create_server(self._place)
        try:
            server.setblocking(False)
        except OSError:
            with contextlib.suppress(OSError):
                server.close()
            raise
        self._server = server

    def _accept(self) -> None:
        """Accept new peers. After an error the next attempt is made after `RETRY_S`."""
        if self._server is None and self._clock() - self._opened_s >= RETRY_S:
            try:
                self._open()
            except OSError as error:
                self._failed(error, REMEDY)
        while self._accepts:
            assert self._server is not None
            try:
                sock, _ = self._server.accept()
            except OSError as error:
                if error.errno not in AT_PRESENT:
                    self._refused_s = self._clock()
                    self._failed(error, REMEDY)
                    if error.errno in (errno.EBADF, errno.EINVAL, errno.ENOTSOCK):
                        self._drop_server()
                return
            self._accepted += 1
            try:
                self._streams[str(self._accepted)] = _Stream(sock)
            except OSError as error:
                with contextlib.suppress(OSError):
                    sock.close()
                self._failed(error, REMEDY)

    @property
    def _accepts(self) -> bool:
        has_room = len(self._streams) < MAX_PEERS
        return self._server is not None and has_room and self._clock() - self._refused_s >= RETRY_S

    def _drop_server(self) -> None:
        assert self._server is not None
        with contextlib.suppress(OSError):
            self._server.close()
        self._server = None

    def receive(self) -> list[Piece]:
        self._recover()
        self._accept()
        pieces, now_s = [], self._clock()
        for name, stream in list(self._streams.items()):
            pieces.append((name, stream.receive()))
            stream.flush(now_s)
            if stream.ended is not None:
                self.dropped += stream.queue.dropped
                stream.close()
                del self._streams[name]
                if stream.ended.errno != errno.ECONNRESET:
                    self._failed(stream.ended, REMEDY)
        return [piece for piece in pieces if piece[1]]

    def send(self, data: bytes) -> None:
        for stream in self._streams.values():
            stream.send(data, self._clock())

    def files(self) -> list[Any]:
        # While no peer can be accepted, the server is left out: a waiting peer would make select() return at
        # once, again and again.
        server = [self._server] if self._accepts else []
        return [*server, *(stream.socket for stream in self._streams.values() if stream.ended is None)]

    def close(self) -> None:
        for stream in self._streams.values():
            stream.close()
        if self._server is not None:
            self._drop_server()
