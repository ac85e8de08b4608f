"""A queue of frames that wait until a link accepts them. Each frame is written whole or not at all."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

# A frame that waits longer than this is dropped, s: an old rate or status is worse than none.
MAX_AGE_S = 0.3
# If more bytes than this wait, the oldest frames are dropped.
MAX_BYTES = 16384


class FrameQueue:
    """A queue of frames with a limit of age and of bytes. ``dropped``: number of frames that were dropped."""

    def __init__(self) -> None:
        self.dropped = 0
        self._rest = b""  # the unwritten rest of a frame that is partly written
        self._waiting: deque[tuple[float, bytes]] = deque()  # (time of `put` in s, frame)
        self._bytes = 0
        self._stuck_since_s: float | None = None  # since when the link has accepted no byte, s

    def put(self, frame: bytes, now_s: float) -> None:
        self._waiting.append((now_s, frame))
        self._bytes += len(frame)
        while self._bytes > MAX_BYTES and len(self._waiting) > 1:
            self._drop()

    def write(self, write: Callable[[bytes], int], now_s: float) -> None:
        """Write as many bytes as the link accepts now.

        ``write``: writes bytes and returns how many the link accepted. If it returns 0 or raises
        BlockingIOError, the link accepts none at present. Its other exceptions are raised.
        """
        while self._waiting and now_s - self._waiting[0][0] > MAX_AGE_S:
            self._drop()
        while self._rest or self._waiting:
            frame = self._rest or self._waiting[0][1]
            try:
                taken = write(frame)
            except BlockingIOError:
                taken = 0
            if not taken:
                if self._stuck_since_s is None:
                    self._stuck_since_s = now_s
                return
            self._stuck_since_s = None
            if not self._rest:
                self._bytes -= len(self._waiting.popleft()[1])
            self._rest = frame[taken:]

    def stalled_s(self, now_s: float) -> float:
        """Return for how long the link has accepted none of the bytes that wait, s."""
        return 0.0 if self._stuck_since_s is None else now_s - self._stuck_since_s

    def clear(self) -> None:
        """Discard all frames that wait, because their connection has ended."""
        self._rest, self._bytes, self._stuck_since_s = b"", 0, None
        self._waiting.clear()

    def _drop(self) -> None:
        self._bytes -= len(self._waiting.popleft()[1])
        self.dropped += 1
