"""Connections that carry MAVLink: UDP as the one who listens or calls, TCP likewise, and serial lines.

Addresses are written as pymavlink and the autopilots' documents write them: ``udpin:HOST:PORT``,
``udpout:HOST:PORT``, ``tcp:HOST:PORT``, ``tcpin:HOST:PORT``, ``serial:DEVICE:BAUD``.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import math
import os
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

READ_SIZE = 65536
# More waiting bytes than this: the line is slower than what is sent, and old messages help nobody.
MOST_WAITING = 16384
RETRY_S = 1.0
# A call without an answer is given up and made anew: the system's own repeats grow rare.
CALL_S = 3.0
MOST_PEERS = 8
PEER_SILENT_S = 60.0
PORT_TAKEN = "is another program listening there?"
KINDS = ("udpin", "udpout", "tcp", "tcpin", "serial")

Piece = tuple[str, bytes]  # who sent it, what


class Connection(ABC):
    """One link. Neither `receive` nor `send` blocks or raises because of the other side.

    ``fault``: why the link can't be used at present and what to do about it, one line; empty while it can.
    """

    datagrams = False

    def __init__(self, address: str) -> None:
        self.address = address
        self.fault = ""

    @abstractmethod
    def receive(self) -> list[Piece]:
        """All that has arrived."""

    @abstractmethod
    def send(self, data: bytes) -> None:
        """Send to every peer of the link."""

    @abstractmethod
    def files(self) -> list[Any]:
        """What select() can wait for."""

    @abstractmethod
    def close(self) -> None: ...


def connect(address: str, clock: Callable[[], float] = time.monotonic) -> Connection:
    """Open a link. Raises ValueError for an address that is none, OSError when a port can't be had."""
    kind, _, rest = address.partition(":")
    host, _, number = rest.rpartition(":")
    if kind not in KINDS or not host or not number.isdecimal():
        raise ValueError(
            f"{address!r} is no MAVLink address; write udpin:HOST:PORT, udpout:HOST:PORT, tcp:HOST:PORT,"
            " tcpin:HOST:PORT or serial:DEVICE:BAUD"
        )
    if kind == "serial":
        return _Serial(address, host, int(number), clock)
    if not 0 < int(number) < 65536:
        raise ValueError(f"{address!r} names port {number}; ports go from 1 to 65535")
    place = (host, int(number))
    if kind in ("udpin", "udpout"):
        return _Udp(address, place, kind == "udpin", clock)
    return TcpIn(address, place) if kind == "tcpin" else _Tcp(address, place, clock)


class _Udp(Connection):
    """Listens, and answers everybody who was heard within the last minute; or calls one address."""

    datagrams = True

    def __init__(
        self, address: str, place: tuple[str, int], listens: bool, clock: Callable[[], float]
    ) -> None:
        super().__init__(address)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            (self._socket.bind if listens else self._socket.connect)(place)
        except OSError as error:
            self._socket.close()
            remedy = PORT_TAKEN if listens else "check the host's name"
            raise OSError(f"{address}: {error.strerror or error}; {remedy}") from error
        self._socket.setblocking(False)
        self._listens, self._clock = listens, clock
        # When each was heard last.
        self._peers = {} if listens else {self._socket.getpeername(): math.inf}

    def receive(self) -> list[Piece]:
        pieces: list[Piece] = []
        while len(pieces) < 1000:
            try:
                data, peer = self._socket.recvfrom(READ_SIZE)
            except BlockingIOError:
                break
            except ConnectionError:  # nobody listens at the other end yet
                continue
            if self._listens:
                if peer not in self._peers and len(self._peers) >= MOST_PEERS:
                    del self._peers[min(self._peers, key=lambda p: self._peers[p])]
                self._peers[peer] = self._clock()
            pieces.append((f"{peer[0]}:{peer[1]}", data))
        return pieces

    def send(self, data: bytes) -> None:
        now = self._clock()
        self._peers = {peer: heard for peer, heard in self._peers.items() if now - heard <= PEER_SILENT_S}
        for peer in self._peers:
            with contextlib.suppress(OSError):
                self._socket.sendto(data, peer)

    def files(self) -> list[Any]:
        return [self._socket]

    def close(self) -> None:
        self._socket.close()


class _Stream:
    """One TCP connection, perhaps not answered yet: what can't be sent at once waits, and is dropped when it
    becomes too much."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = sock
        self._waiting = bytearray()
        self.ended = False

    @property
    def is_answered(self) -> bool:
        try:
            self.socket.getpeername()
        except OSError:
            return False
        return True

    def receive(self) -> bytes:
        data = bytearray()
        while not self.ended and len(data) < READ_SIZE:
            try:
                part = self.socket.recv(READ_SIZE)
            except BlockingIOError:
                break
            except OSError:
                part = b""
            self.ended = not part
            data += part
        return bytes(data)

    def send(self, data: bytes) -> None:
        if len(self._waiting) + len(data) <= MOST_WAITING:
            self._waiting += data
        try:
            del self._waiting[: self.socket.send(self._waiting)]
        except BlockingIOError:
            pass
        except OSError:
            self.ended = True


class _Tcp(Connection):
    """Calls a TCP port, and calls again when the connection ended. The host's name is looked up once, at the
    start: that blocks."""

    def __init__(self, address: str, place: tuple[str, int], clock: Callable[[], float]) -> None:
        super().__init__(address)
        try:
            found = socket.getaddrinfo(*place, type=socket.SOCK_STREAM)
        except OSError as error:
            raise OSError(f"{address}: {error.strerror or error}; check the host's name") from error
        # One after the other; simulators listen on the first.
        found.sort(key=lambda entry: entry[0] != socket.AF_INET)
        self._places = itertools.cycle([(entry[0], entry[4]) for entry in found])
        self._clock = clock
        self._stream: _Stream | None = None
        self._calls = 0
        self._called = -CALL_S
        self._open()

    def _open(self) -> _Stream | None:
        """The connection that there is; a call without an answer is given up after a while."""
        stream, waited_s = self._stream, self._clock() - self._called
        if stream is not None and (stream.ended or (waited_s >= CALL_S and not stream.is_answered)):
            stream.socket.close()
            self._stream = None
        if self._stream is None and waited_s >= RETRY_S:
            self._called = self._clock()
            self._calls += 1
            family, place = next(self._places)
            with contextlib.suppress(OSError):
                self._stream = _Stream(socket.socket(family, socket.SOCK_STREAM))
                self._stream.socket.connect_ex(place)  # its error is the next one of receiving
        return self._stream

    def receive(self) -> list[Piece]:
        stream = self._open()
        data = b"" if stream is None else stream.receive()
        return [(str(self._calls), data)] if data else []

    def send(self, data: bytes) -> None:
        stream = self._open()
        # What waited for an answer would be old.
        if stream is not None and stream.is_answered:
            stream.send(data)

    def files(self) -> list[Any]:
        return [] if self._stream is None or not self._stream.is_answered else [self._stream.socket]

    def close(self) -> None:
        if self._stream is not None:
            self._stream.socket.close()


class TcpIn(Connection):
    """Listens on a TCP port for any number of peers."""

    def __init__(self, address: str, place: tuple[str, int]) -> None:
        super().__init__(address)
        try:
            self._server = socket.create_server(place)
        except OSError as error:
            raise OSError(f"{address}: {error.strerror or error}; {PORT_TAKEN}") from error
        self._server.setblocking(False)
        self._streams: dict[str, _Stream] = {}
        self._accepted = 0

    def receive(self) -> list[Piece]:
        with contextlib.suppress(BlockingIOError):
            while len(self._streams) < MOST_PEERS:
                sock, _ = self._server.accept()
                self._accepted += 1
                self._streams[str(self._accepted)] = _Stream(sock)
        pieces = [(name, stream.receive()) for name, stream in self._streams.items()]
        for name in [name for name, stream in self._streams.items() if stream.ended]:
            self._streams.pop(name).socket.close()
        return [piece for piece in pieces if piece[1]]

    def send(self, data: bytes) -> None:
        for stream in self._streams.values():
            stream.send(data)

    def files(self) -> list[Any]:
        return [self._server, *(stream.socket for stream in self._streams.values())]

    def close(self) -> None:
        for stream in self._streams.values():
            stream.socket.close()
        self._server.close()


_NO_DEVICE = "check the cable and the device's name (ls /dev/serial/by-id)"
_NO_SERIAL_LINE = "that is no serial line; check the device's name"
_NOT_PERMITTED = "add the user to the device's group, mostly dialout, and log in again"
_SERIAL_REMEDIES = {
    errno.ENOENT: _NO_DEVICE,
    errno.ENXIO: _NO_DEVICE,
    errno.ENODEV: _NO_DEVICE,
    errno.EIO: _NO_DEVICE,
    errno.EACCES: _NOT_PERMITTED,
    errno.EPERM: _NOT_PERMITTED,
    errno.EBUSY: "end the other program that uses it",
    errno.ENOTTY: _NO_SERIAL_LINE,
    errno.EISDIR: _NO_SERIAL_LINE,
    errno.EINVAL: "check the baud rate",
}


def _serial_fault(error: Exception) -> str:
    """The system's words and the remedy."""
    # pyserial keeps the number of what failed while it set the line up only in the error that it replaced.
    for each in (error, error.__context__):
        if each is not None and each.args and isinstance(each.args[0], int):
            number = each.args[0]
            return (
                f"{os.strerror(number)}; {_SERIAL_REMEDIES.get(number, 'check device, cable and baud rate')}"
            )
    return f"{' '.join(str(error).split())}; check device and baud rate"


class _Serial(Connection):
    """A serial line, opened again when the device went away."""

    def __init__(self, address: str, device: str, baud: int, clock: Callable[[], float]) -> None:
        super().__init__(address)
        try:
            import serial
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(f"{address} needs pyserial: pip install pyserial") from error
        self._serial = serial
        self._device, self._baud, self._clock = device, baud, clock
        self._next_try = -RETRY_S
        self._opened = 0
        self._line: Any = None
        self._open()

    def _open(self) -> Any:
        if self._line is None and self._clock() >= self._next_try:
            self._next_try = self._clock() + RETRY_S
            try:
                self._line = self._serial.Serial(self._device, self._baud, timeout=0, write_timeout=0)
                self._opened += 1
                self.fault = ""
            except (OSError, ValueError) as error:  # ValueError: the baud rate
                self.fault = f"{self.address} can't be opened: {_serial_fault(error)}"
        return self._line

    def _lost(self) -> None:
        with contextlib.suppress(OSError):
            self._line.close()
        self._line = None

    def receive(self) -> list[Piece]:
        line = self._open()
        if line is None:
            return []
        try:
            data = line.read(READ_SIZE)
        except (OSError, TypeError):  # pyserial reads from a closed file number when the device vanished
            self._lost()
            return []
        return [(str(self._opened), data)] if data else []

    def send(self, data: bytes) -> None:
        line = self._open()
        if line is None:
            return
        try:
            if line.out_waiting <= MOST_WAITING:
                line.write(data)
        except self._serial.SerialTimeoutException:
            pass
        except OSError:
            self._lost()

    def files(self) -> list[Any]:
        return [] if self._line is None else [self._line]

    def close(self) -> None:
        if self._line is not None:
            self._line.close()
