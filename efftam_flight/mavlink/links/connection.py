"""What every link has in common: errors of the operating system are counted and reported, never raised."""

from __future__ import annotations

import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

READ_SIZE = 65536
# A link that failed is opened again after so long, s.
RETRY_S = 1.0
# Without a further error for so long a link counts as well again, s.
RECOVERED_S = 3.0
# A link that takes no byte for so long is reported, s.
STALLED_S = 1.0
# After so long its connection is closed and opened again, s.
MAX_STALL_S = 10.0
MAX_PEERS = 8

Piece = tuple[str, bytes]  # who sent it, what

# Nothing is wrong: there is nothing to read, or no room to write, at present.
AT_PRESENT = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EINTR, errno.EINPROGRESS, errno.EALREADY)


class Connection(ABC):
    """One link.

    `receive`, `send`, `files` and `close` neither block nor raise OSError: whatever the operating system
    reports, from the other end or from this machine, is counted in ``errors``, stands in ``fault`` while it
    lasts, and the link is tried again. ``fault``: why the link can't be used at present and what to do about
    it, one line; empty while it can. ``dropped`` counts the frames that the link did not take in time.
    """

    datagrams = False

    def __init__(self, address: str, clock: Callable[[], float]) -> None:
        self.address = address
        self.fault = ""
        self.errors = 0
        self.dropped = 0
        self._clock = clock
        self._failed_s = 0.0  # when the last error came

    @abstractmethod
    def receive(self) -> list[Piece]:
        """Return all that has arrived."""

    @abstractmethod
    def send(self, data: bytes) -> None:
        """Send one whole frame to every peer of the link."""

    @abstractmethod
    def files(self) -> list[Any]:
        """Return what select() can wait for."""

    @abstractmethod
    def close(self) -> None: ...

    def _failed(self, error: OSError, remedy: str) -> None:
        """Count an error of the operating system and report it."""
        self.errors += 1
        self._failed_s = self._clock()
        text = error.strerror or (os.strerror(error.errno) if error.errno else "") or str(error)
        self.fault = f"{self.address}: {' '.join(text.split())}; it is tried again; {remedy}"

    def _stalled(self, remedy: str) -> None:
        """Report that the link takes nothing of what is sent."""
        self._failed_s = self._clock()
        self.fault = f"{self.address} has taken nothing of what is sent for {STALLED_S:g} s; {remedy}"

    def _recover(self) -> None:
        """Take the fault back once no error came for a while; call it now and then."""
        if self.fault and self._clock() - self._failed_s >= RECOVERED_S:
            self.fault = ""
