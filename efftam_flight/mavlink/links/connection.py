"""The base class of all links. Errors of the operating system are counted and reported, never raised."""

from __future__ import annotations

import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

READ_SIZE = 65536
# A link that failed is opened again after this time, s.
RETRY_S = 1.0
# The fault of a link is cleared after this time without a further error, s.
RECOVERED_S = 3.0
# A link that accepts no byte for this time is reported as a fault, s.
STALLED_S = 1.0
# A connection that accepts no byte for this time is closed and opened again, s.
MAX_STALL_S = 10.0
MAX_PEERS = 8

Piece = tuple[str, bytes]  # (name of the peer, the bytes that it sent)

# These errors are no faults: there is nothing to read, or no room to write, at present.
AT_PRESENT = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EINTR, errno.EINPROGRESS, errno.EALREADY)


class Connection(ABC):
    """One link.

    `receive`, `send`, `files` and `close` neither block nor raise OSError. After an error of the operating
    system the link is opened again. ``errors``: number of these errors. ``fault``: one line that states why
    the link can't be used at present, with the remedy; empty if it can. ``dropped``: number of frames that
    were dropped because the link did not accept them in time. ``datagrams``: whether each piece of bytes
    holds whole frames.
    """

    datagrams = False

    def __init__(self, address: str, clock: Callable[[], float]) -> None:
        self.address = address
        self.fault = ""
        self.errors = 0
        self.dropped = 0
        self._clock = clock
        self._failed_s = 0.0  # time of the last error, by `clock`

    @abstractmethod
    def receive(self) -> list[Piece]:
        """Return the bytes that have arrived, with the names of the peers that sent them."""

    @abstractmethod
    def send(self, data: bytes) -> None:
        """Send one whole frame to every peer of the link."""

    @abstractmethod
    def files(self) -> list[Any]:
        """Return the objects with a file descriptor, on which select() can wait for bytes."""

    @abstractmethod
    def close(self) -> None: ...

    def _failed(self, error: OSError, remedy: str) -> None:
        """Count an error of the operating system and set the fault. ``remedy``: what the user can do."""
        self.errors += 1
        self._failed_s = self._clock()
        text = error.strerror or (os.strerror(error.errno) if error.errno else "") or str(error)
        self.fault = f"{self.address}: {' '.join(text.split())}; the link is tried again; {remedy}"

    def _stalled(self, remedy: str) -> None:
        """Set the fault: the link accepts no bytes. ``remedy``: what the user can do."""
        self._failed_s = self._clock()
        self.fault = f"{self.address} has accepted no bytes for {STALLED_S:g} s; {remedy}"

    def _recover(self) -> None:
        """Clear the fault if there was no error for `RECOVERED_S`. Must be called regularly."""
        if self.fault and self._clock() - self._failed_s >= RECOVERED_S:
            self.fault = ""
