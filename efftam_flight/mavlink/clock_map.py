"""From another machine's clock to ours: the smallest delay seen in the last ten seconds counts as none.

A clock that runs a percent slow (a simulator's) would be off by a tenth of a second after ten: its drift is
the median of those between the best of each second, and taken out.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import deque

from efftam_flight.control_config import Instant
from efftam_flight.values import NS

# International atomic time is ahead of the system's by so much since 2017, and no leap second will follow.
TAI_AHEAD_NS = 37 * NS
# An image is at most so old when it is answered, and its stamp ahead of arrival by at most so much.
OLDEST_NS, AHEAD_NS = 5 * NS, 100_000_000

SPAN_S, SPANS, MIN_SPANS = 1.0, 10, 4
# Crystals drift a hundred times less; a smaller apparent drift may be the links' jitter, a larger one is no
# clock.
MIN_DRIFT, MAX_DRIFT = 0.002, 0.05
# The other clock went back or ahead by more: it was started anew, s. A longer delay is no sign of that: a
# message that merely arrives late must not look young.
JUMP_S = 1.0


class ClockMap:
    """One source's clock. Feed it every message's time; both clocks in seconds, ours one that never jumps."""

    def __init__(self) -> None:
        # Of each second the message that was fastest: its arrival, ours - theirs.
        self._best: deque[tuple[float, float]] = deque(maxlen=SPANS)
        self._drift = 0.0
        self._span_s = -math.inf
        self._last_remote_s = -math.inf
        self.restarts = 0

    @property
    def is_known(self) -> bool:
        return bool(self._best)

    def restart(self) -> None:
        self.restarts += 1
        self._best.clear()
        self._drift = 0.0

    def to_ours(self, remote_s: float, arrival_s: float) -> float:
        """Return when a message was made, on our clock; never later than its arrival."""
        offset = arrival_s - remote_s
        if self.is_known and (
            remote_s < self._last_remote_s - JUMP_S or self._offset(arrival_s) - offset > JUMP_S
        ):
            self.restart()
        if not self._best or arrival_s - self._span_s >= SPAN_S:
            self._measure_drift()
            self._best.append((arrival_s, offset))
            self._span_s = arrival_s
        elif offset < self._at(self._best[-1], arrival_s):
            self._best[-1] = (arrival_s, offset)
        self._last_remote_s = remote_s
        return remote_s + self._offset(arrival_s)

    def when(self, remote_s: float, now_s: float) -> float:
        """Return a known clock's time on ours."""
        return remote_s + self._offset(now_s)

    def to_theirs(self, ours_s: float) -> float:
        """Return the source's clock at one of our times. Raises ValueError before the first message."""
        if not self.is_known:
            raise ValueError("no time of this clock has arrived yet")
        return ours_s - self._offset(ours_s)

    def _at(self, best: tuple[float, float], now_s: float) -> float:
        return best[1] + self._drift * (now_s - best[0])

    def _offset(self, now_s: float) -> float:
        return min(self._at(best, now_s) for best in self._best)

    def _measure_drift(self) -> None:
        if len(self._best) >= MIN_SPANS:
            pairs = itertools.combinations(self._best, 2)
            drift = statistics.median((b[1] - a[1]) / (b[0] - a[0]) for a, b in pairs if b[0] > a[0])
            self._drift = drift if MIN_DRIFT <= abs(drift) <= MAX_DRIFT else 0.0


def image_clock(stamp_ns: int, now: Instant) -> tuple[str, int] | None:
    """Name and present time, ns, of the clock by which a camera stamped an image that was just answered: the
    system's, atomic time or the time since boot; None for any other."""
    clocks = (
        ("", now.stamp_ns),
        ("atomic time (TAI)", now.stamp_ns + TAI_AHEAD_NS),
        ("the time since boot", round(now.steady_s * NS)),
    )
    return next((clock for clock in clocks if -AHEAD_NS <= clock[1] - stamp_ns <= OLDEST_NS), None)
