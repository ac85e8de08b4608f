"""A link within one process, for simulated time. Each of its two ends receives the frames that the other end
sends."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from efftam_flight.mavlink.links.connection import Connection, Piece


class MemoryLink(Connection):
    """One end of a link; `memory_link` makes both ends.

    ``delay_s``: time from sending to arrival of a frame. ``cut``: whether all frames sent from this end are
    lost. ``record``: whether the frames sent from this end are stored in ``sent``.
    """

    datagrams = True

    def __init__(self, address: str, clock: Callable[[], float], delay_s: float) -> None:
        super().__init__(address, clock)
        self._delay_s = delay_s
        self._arriving: deque[tuple[float, bytes]] = deque()
        self.other: MemoryLink | None = None
        self.cut = False
        self.sent: list[bytes] = []
        self.record = False

    def receive(self) -> list[Piece]:
        pieces = []
        while self._arriving and self._arriving[0][0] <= self._clock():
            pieces.append(("peer", self._arriving.popleft()[1]))
        return pieces

    def send(self, data: bytes) -> None:
        if self.record:
            self.sent.append(data)
        if self.other is not None and not self.cut:
            self.other._arriving.append((self._clock() + self._delay_s, data))

    def files(self) -> list[Any]:
        return []

    def close(self) -> None:
        """Close the link. Frames that have not been read are lost, as with a TCP connection to ArduPilot."""
        for end in (self, self.other):
            if end is not None:
                end._arriving.clear()


def memory_link(
    name: str, clock: Callable[[], float], delay_s: float = 0.001
) -> tuple[MemoryLink, MemoryLink]:
    """Return both ends of a new link."""
    ends = MemoryLink(f"{name}:a", clock, delay_s), MemoryLink(f"{name}:b", clock, delay_s)
    ends[0].other, ends[1].other = ends[1], ends[0]
    return ends
