"""Frames that wait until a link takes them: each is written whole or not at all."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

# A frame of which nothing was written for so long is dropped: an old rate or status is worse than none, s.
MAX_AGE_S = 0.3
# More waiting bytes than this: the oldest frames are dropped.
MAX_BYTES = 16384


class FrameQueue:
    """Bounded in time and in bytes. ``dropped`` counts the frames of which nothing was written."""

    def __init__(self) -> None:
        self.dropped = 0
        self._rest = b""  # of the frame that was partly written
        self._waiting: deque[tuple[float, bytes]] = deque()  # when it was put, frame
        self._bytes = 0
        self._stuck_since_s: float | None = None  # since when bytes were offered and none was taken

    def put(self, frame: bytes, now_s: float) -> None:
        self._waiting.append((now_s, frame))
        self._bytes += len(frame)
        while self._bytes > MAX_BYTES and len(self._waiting) > 1:
            self._drop()

    def write(self, write: Callable[[bytes], int], now_s: float) -> None:
        """Hand over what the link takes now. ``write`` returns how many bytes it took; 0 or BlockingIOError:
        none at present. What else it raises is raised."""
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
        """Return for how long the link has taken no byte of what was offered, s."""
        return 0.0 if self._stuck_since_s is None else now_s - self._stuck_since_s

    def clear(self) -> None:
        """Forget all that waits: the connection that it was for is gone."""
        self._rest, self._bytes, self._stuck_since_s = b"", 0, None
        self._waiting.clear()

    def _drop(self) -> None:
        self._bytes -= len(self._waiting.popleft()[1])
        self.dropped += 1
