"""Converts times of another machine's clock to our clock. The message with the smallest delay in the last ten
seconds is taken as one without delay.

A simulator's clock may run slow by a percent, which makes an error of 0.1 s in ten seconds. So the drift is
estimated and corrected. For each second the message with the smallest delay is kept. The drift is the median
of the drifts between all pairs of these messages.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import deque

from efftam_flight.control_config import Instant
from efftam_flight.values import NS

# Since 2017 international atomic time is ahead of the system's clock by this. No more leap seconds are
# planned.
TAI_AHEAD_NS = 37 * NS
# When the tracker answers an image, the image is at most OLDEST_NS old, and its stamp lies at most AHEAD_NS
# in the future. Otherwise the stamp is of another clock.
OLDEST_NS, AHEAD_NS = 5 * NS, 100_000_000

SPAN_S, SPANS, MIN_SPANS = 1.0, 10, 4
# Drifts outside this range are not corrected. A smaller one may be jitter of the link, since quartz clocks
# drift a hundred times less. A larger one is not the drift of a clock.
MIN_DRIFT, MAX_DRIFT = 0.002, 0.05
# If the other clock goes back, or ahead, by more than this, it was restarted, s. A message with a long delay
# must not count as a restart: the delay would be ignored, and the message would look younger than it is.
JUMP_S = 1.0


class ClockMap:
    """Maps the clock of one source to ours, by the times in its messages. All times are in seconds; ours come
    from a clock that never jumps."""

    def __init__(self) -> None:
        # For each second, of the message with the smallest delay: (arrival, our clock minus the other clock),
        # s.
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
        """Return when a message was made, on our clock, never later than its arrival. ``remote_s``: the time
        that the message carries. ``arrival_s``: when it arrived, on our clock."""
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
        """Convert a time of the source's clock to ours, without using it to correct the map. `is_known` must
        be true."""
        return remote_s + self._offset(now_s)

    def to_theirs(self, ours_s: float) -> float:
        """Convert a time of our clock to the source's. Raise ValueError before the first message."""
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
    """Find the clock by which a camera stamps its images, from the stamp of an image that was just answered.

    Return (name of the clock, its present time in ns). The name is empty for the system's clock. The other
    clocks are international atomic time and the time since boot. Return None if no clock fits.
    """
    clocks = (
        ("", now.stamp_ns),
        ("atomic time (TAI)", now.stamp_ns + TAI_AHEAD_NS),
        ("the time since boot", round(now.steady_s * NS)),
    )
    return next((clock for clock in clocks if -AHEAD_NS <= clock[1] - stamp_ns <= OLDEST_NS), None)
