"""Puts the images of a live stream on the clock of their arrival. Pure: times in, times out, all in ns."""

from __future__ import annotations

from collections import deque

import numpy as np

from efftam_ros.images.streams.steps import ClockSteps

NS = 1_000_000_000
# Time over which the shortest delay counts as the stream's own, and the step of the clock that restarts it.
DELAY_WINDOW_NS, DELAY_STEP_NS = 10 * NS, NS
# Arrivals over which the rate is fitted; shorter where arrival is believed, as such a rate may change.
RATE_WINDOW_NS, ARRIVAL_WINDOW_NS = 8 * NS, 2 * NS
# Where arrival is believed, stamps are at most so long before it: the rate may have changed.
MAX_LAG_NS = 200_000_000
MIN_SPAN_NS, MIN_IMAGES = NS // 2, 8
# The stream's times are not believed beyond this share of error, and again below that.
MAX_ERROR, MIN_ERROR = 0.02, 0.01
# Jitter may look like another rate: so many times its spread is left to it.
JITTER = 1.5
# A judgement is reported once it has lasted for so long.
TOLD_SPAN_NS = 4 * NS
# Images that were sent before come at once: they are passed over until the shortest delay stood for so long
# within the tolerance, and no longer than the limit.
SETTLED_NS, SETTLED_TOLERANCE_NS, SETTLE_LIMIT_NS = 300_000_000, 20_000_000, 800_000_000


class ArrivalClock:
    """Gives each image a stamp on the clock of arrival, without the network's jitter.

    The stream's own times are exact, and keep their distances: the shortest delay of the last 10 s is taken
    for all. Where its clock steps, or one image has a wrong time, they are corrected (`ClockSteps`). Where
    their rate differs from that of the arrivals by more than 2 %, as of a camera that stamps its nominal
    rate, arrival wins: rate and offset are fitted to it.

    ``is_timed``: whether the own times mean anything; else they only count the images.
    """

    def __init__(self, is_timed: bool = True) -> None:
        self._is_timed = self._is_believed = is_timed
        self._steps = ClockSteps()
        self._delays: deque[tuple[int, int]] = deque()  # arrival and delay; both grow
        self._pairs: deque[tuple[int, int]] = deque()  # arrival and own time
        self._last_ns = self._own_ns = 0
        self._late_ns: int | None = None  # when images began to come late
        self._ready_ns: int | None = None
        self._limit_ns = 0
        self.own_rate: float | None = None
        """The stream's seconds per second of arrival, once they differ for some seconds; else None."""

    @property
    def ready_ns(self) -> int:
        """When the newest image may be used: what was sent before the start has been passed over."""
        return 0 if self._ready_ns is None else min(self._ready_ns, self._limit_ns)

    @property
    def clock_steps(self) -> int:
        """How often the stream's clock stepped so far."""
        return self._steps.found

    def stamp_ns(self, own_ns: int, arrived_ns: int) -> int:
        """Return the stamp of an image of the stream's time ``own_ns``; stamps grow and are never after the
        arrival."""
        if self._is_timed:
            shortest_ns = self._delays[0][1] if self._delays else None
            own_ns = self._steps.corrected_ns(own_ns, arrived_ns, shortest_ns)
        shortest_ns = self._shortest_delay(own_ns, arrived_ns)
        self._own_ns, stamp_ns = own_ns, own_ns + shortest_ns
        fitted_ns = self._fitted(own_ns, arrived_ns)
        if not self._is_believed:
            stamp_ns = fitted_ns
        self._last_ns = min(max(stamp_ns, self._last_ns + 1), arrived_ns)
        return self._last_ns

    def _shortest_delay(self, own_ns: int, arrived_ns: int) -> int:
        delays, delay_ns = self._delays, arrived_ns - own_ns
        if self._ready_ns is None:
            self._ready_ns, self._limit_ns = arrived_ns + SETTLED_NS, arrived_ns + SETTLE_LIMIT_NS
        elif delays and delay_ns < delays[0][1] - SETTLED_TOLERANCE_NS and arrived_ns < self.ready_ns:
            self._ready_ns = arrived_ns + SETTLED_NS
            self._pairs.clear()
        if not delays or delay_ns - delays[0][1] <= DELAY_STEP_NS:
            self._late_ns = None
        elif self._late_ns is None and 0 < own_ns - self._own_ns < DELAY_STEP_NS:
            self._late_ns = arrived_ns  # after a pause a connection sends the images that it kept
        if self._late_ns is not None and arrived_ns - self._late_ns < DELAY_STEP_NS:
            return delays[0][1]
        if delays and delay_ns - delays[0][1] > DELAY_STEP_NS:
            delays.clear()  # the stream's clock was set
            if self._is_believed:
                self._pairs.clear()
        while delays and delays[-1][1] >= delay_ns:
            delays.pop()
        delays.append((arrived_ns, delay_ns))
        while delays[0][0] < arrived_ns - DELAY_WINDOW_NS:
            delays.popleft()
        return delays[0][1]

    def _fitted(self, own_ns: int, arrived_ns: int) -> int:
        """Return the arrival that the rate of the last seconds expects; decides which time is believed."""
        pairs = self._pairs
        if pairs and not pairs[-1][1] < own_ns < pairs[-1][1] + DELAY_WINDOW_NS:
            pairs.clear()  # the own clock was set
        pairs.append((arrived_ns, own_ns))
        while pairs[0][0] < arrived_ns - RATE_WINDOW_NS:
            pairs.popleft()
        span_ns = arrived_ns - pairs[0][0]
        if len(pairs) < MIN_IMAGES or span_ns < MIN_SPAN_NS:
            return arrived_ns
        if self._is_timed:
            rate, _, spread_ns = _line(pairs)
            error = abs(1.0 - rate)
            if error > MAX_ERROR + JITTER * spread_ns / span_ns:
                self._is_believed = False
                if span_ns >= TOLD_SPAN_NS:
                    self.own_rate = 1.0 / rate
            elif error < MIN_ERROR and span_ns >= TOLD_SPAN_NS:
                self._is_believed, self.own_rate = True, None
        if self._is_believed:
            return arrived_ns
        recent = [pair for pair in pairs if pair[0] >= arrived_ns - ARRIVAL_WINDOW_NS]
        rate, offset_ns, _ = _line(recent)
        return max(round(rate * own_ns + offset_ns), arrived_ns - MAX_LAG_NS)


def _line(pairs: deque[tuple[int, int]] | list[tuple[int, int]]) -> tuple[float, float, float]:
    """Rate and offset of the line through (arrival, own time), moved below all arrivals, and the arrivals'
    spread about it, ns."""
    arrived_0, own_0 = pairs[-1]
    arrived, own = np.array([(a - arrived_0, o - own_0) for a, o in pairs], np.float64).T
    middle = own - own.mean()
    square = float(middle @ middle)
    rate = float(middle @ arrived) / square if square else 1.0
    over = arrived - rate * own
    return rate, float(over.min()) + arrived_0 - rate * own_0, float(np.ptp(over))
