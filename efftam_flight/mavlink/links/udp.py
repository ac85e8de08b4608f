"""The links over UDP: one listens and answers its peers, the other sends to one address."""

from __future__ import annotations

import contextlib
import errno
import math
import socket
from collections.abc import Callable
from typing import Any

from efftam_flight.mavlink.links.connection import (
    AT_PRESENT,
    MAX_PEERS,
    READ_SIZE,
    RETRY_S,
    Connection,
    Piece,
)

PEER_SILENT_S = 60.0
MAX_DATAGRAMS = 1000
# One call of `receive` reads at most this many errors. Each datagram to an unreachable peer causes one.
MAX_ERRORS = 32
REMEDY = "check the network, and the firewall at both ends"
PORT_TAKEN = "is another program listening there?"
# At the start these errors mean that the address is wrong, so they are raised. Waiting would not help.
MISTAKES = (errno.EADDRINUSE, errno.EACCES)


class Udp(Connection):
    """A UDP link. If ``listens``, it sends to each peer that sent something within the last minute. Otherwise
    it sends to the one address.

    Raises OSError if the port to listen at is in use or not permitted, or if the host's name is unknown.
    """

    datagrams = True

    def __init__(
        self, address: str, place: tuple[str, int], listens: bool, clock: Callable[[], float]
    ) -> None:
        super().__init__(address, clock)
        self._listens = listens
        try:
            # The host's name is resolved only once, in the constructor, because resolving may block.
            self._place = socket.getaddrinfo(*place, socket.AF_INET, socket.SOCK_DGRAM)[0][4]
        except socket.gaierror as error:
            raise OSError(f"{address}: {error.strerror or error}; check the host's name") from error
        self._peers: dict[Any, float] = {}  # when each peer last sent something, s
        self._socket: socket.socket | None = None
        self._opened_s = -math.inf
        try:
            self._open()
        except OSError as error:
            if listens and error.errno in MISTAKES:
                raise OSError(f"{address}: {error.strerror or error}; {PORT_TAKEN}") from error
            self._failed(error, REMEDY)

    def _open(self) -> None:
        self._opened_s = self._clock()
        opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            opened.setblocking(False)
            (opened.bind if self._listens else opened.connect)(self._place)
        except OSError:
            with contextlib.suppress(OSError):
                opened.close()
            raise
        self._socket = opened
        if not self._listens:
            self._peers = {self._place: math.inf}

    def _again(self) -> socket.socket | None:
        """Return the socket. If there is none, try once per `RETRY_S` to open it; return None if that
        fails."""
        if self._socket is None and self._clock() - self._opened_s >= RETRY_S:
            try:
                self._open()
            except OSError as error:
                self._failed(error, REMEDY)
        return self._socket

    def _lose(self) -> None:
        """Close a socket that keeps failing, since its address or network interface may have disappeared.
        `_again` opens a new one."""
        if self._socket is not None and self._clock() - self._opened_s >= RETRY_S:
            with contextlib.suppress(OSError):
                self._socket.close()
            self._socket = None

    def receive(self) -> list[Piece]:
        self._recover()
        pieces: list[Piece] = []
        opened, errors = self._again(), 0
        while opened is not None and len(pieces) < MAX_DATAGRAMS and errors < MAX_ERRORS:
            try:
                data, peer = opened.recvfrom(READ_SIZE)
            except OSError as error:
                if error.errno in AT_PRESENT:
                    break
                errors += 1
                self._note(error)
                continue
            if self._listens:
                if peer not in self._peers and len(self._peers) >= MAX_PEERS:
                    del self._peers[min(self._peers, key=lambda p: self._peers[p])]
                self._peers[peer] = self._clock()
            pieces.append((f"{peer[0]}:{peer[1]}", data))
        if errors == MAX_ERRORS:
            self._lose()
        return pieces

    def send(self, data: bytes) -> None:
        now_s, opened = self._clock(), self._again()
        self._peers = {
            peer: received_s
            for peer, received_s in self._peers.items()
            if now_s - received_s <= PEER_SILENT_S
        }
        if opened is None:
            return
        for peer in self._peers:
            try:
                # A connected socket sends without an address, since sendto() on it is an error on some
                # systems.
                opened.sendto(data, peer) if self._listens else opened.send(data)
            except OSError as error:
                if error.errno in AT_PRESENT:
                    self.dropped += 1
                    continue
                self._note(error)
                if not self._listens and error.errno != errno.ECONNREFUSED:
                    self._lose()

    def _note(self, error: OSError) -> None:
        # ECONNREFUSED is no fault: the program at the other end has not started yet.
        if error.errno == errno.ECONNREFUSED:
            self.errors += 1
        else:
            self._failed(error, REMEDY)

    def files(self) -> list[Any]:
        return [] if self._socket is None else [self._socket]

    def close(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
