"""Limits per viewer: unacknowledged frames, their size, the rate of messages and their age."""

from __future__ import annotations

import math
from collections import deque

MOST_UNACKNOWLEDGED = 2
# Below this rate frames are sent at half size.
WANTED_HZ = 10.0
WINDOW_S = 1.0
FIRST_RETRY_S = 4.0
LONGEST_RETRY_S = 60.0
# More than the clocks of two computers drift apart, s per s.
DRIFT = 1e-3


class FrameCredit:
    """A viewer's share of the link, from its acknowledgements alone. ``now_s``: a monotonic clock.

    Bounding what is under way bounds the delay: whatever the socket and the network would buffer, the newest
    picture waits for two others at most. A viewer that keeps up with fewer than ``WANTED_HZ`` frames per
    second gets half size; full size is tried again later, and later still each time it fails.
    """

    def __init__(self) -> None:
        self._under_way: deque[int] = deque()
        self._offered: deque[float] = deque()
        self._acknowledged: deque[float] = deque()
        self._half = False
        self._changed_s: float | None = None
        self._retry_s = FIRST_RETRY_S

    @property
    def is_ready(self) -> bool:
        """Whether one more frame may be sent."""
        return len(self._under_way) < MOST_UNACKNOWLEDGED

    @property
    def is_under_way(self) -> bool:
        """Whether a frame was sent and not acknowledged yet."""
        return bool(self._under_way)

    @property
    def half(self) -> bool:
        """Whether the next frame goes out at half size."""
        return self._half

    def offered(self, now_s: float) -> None:
        """Count a new image, whether or not it will be sent."""
        self._offered.append(now_s)
        self._decide(now_s)

    def sent(self, seq: int) -> None:
        self._under_way.append(seq)

    def acknowledged(self, seq: int, now_s: float) -> None:
        """The viewer has handled frame ``seq`` and all before it. Numbers never sent change nothing."""
        if seq not in self._under_way:
            return
        while self._under_way.popleft() != seq:
            pass
        self._acknowledged.append(now_s)

    def rate_hz(self, now_s: float) -> float:
        """Frames acknowledged per second, over the last second."""
        return _recent(self._acknowledged, now_s) / WINDOW_S

    def _decide(self, now_s: float) -> None:
        offered_hz, rate_hz = _recent(self._offered, now_s) / WINDOW_S, self.rate_hz(now_s)
        if self._changed_s is None:
            self._changed_s = now_s
        lasted_s = now_s - self._changed_s
        behind = rate_hz < WANTED_HZ and rate_hz < 0.75 * offered_hz
        if not self._half and lasted_s >= 1.5 * WINDOW_S and behind:
            # Full size failed soon after it was tried again: wait longer before the next attempt.
            self._retry_s = min(2 * self._retry_s, LONGEST_RETRY_S) if lasted_s < 4.0 else FIRST_RETRY_S
            self._half, self._changed_s = True, now_s
        elif self._half and lasted_s >= self._retry_s and not behind:
            self._half, self._changed_s = False, now_s


class RateLimit:
    """At most ``per_s`` per second on average, in bursts of up to ``per_s``."""

    def __init__(self, per_s: float) -> None:
        self.per_s = per_s
        self._left = per_s
        self._at_s: float | None = None

    def allows(self, now_s: float) -> bool:
        """Whether one more is within the limit; it is counted when it is."""
        if self._at_s is not None:
            self._left = min(self.per_s, self._left + (now_s - self._at_s) * self.per_s)
        self._at_s = now_s
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Lateness:
    """How much later than the quickest message of its page another one came. Both clocks run steadily; their
    difference is not known."""

    def __init__(self) -> None:
        self._least_s = math.inf
        self._at_s = 0.0

    def late_s(self, sent_ms: float, now_s: float) -> float:
        """``sent_ms`` by the page's clock, ``now_s`` by ours; 0 where ``sent_ms`` is NaN."""
        if math.isnan(sent_ms):
            return 0.0
        way_s = now_s - sent_ms / 1e3
        self._least_s = min(self._least_s + DRIFT * (now_s - self._at_s), way_s)
        self._at_s = now_s
        return way_s - self._least_s


def _recent(times: deque[float], now_s: float) -> int:
    while times and now_s - times[0] > WINDOW_S:
        times.popleft()
    return len(times)
