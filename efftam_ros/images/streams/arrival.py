"""Converts the times of a live stream to the clock on which its images arrive. All times are ns."""

from __future__ import annotations

from collections import deque

import numpy as np

from efftam_ros.images.streams.steps import ClockSteps

NS = 1_000_000_000
# The delay of a stream is the shortest delay of its images in the last DELAY_WINDOW_NS. If delays grow by
# more than DELAY_STEP_NS and stay so, the stream's clock was set, and the shortest delay is determined anew.
DELAY_WINDOW_NS, DELAY_STEP_NS = 10 * NS, NS
# The stream's rate is compared with that of the arrivals over the last RATE_WINDOW_NS. If stamps are computed
# from the arrivals, only the arrivals of the last ARRIVAL_WINDOW_NS are used, because the rate of such a
# stream may change.
RATE_WINDOW_NS, ARRIVAL_WINDOW_NS = 8 * NS, 2 * NS
# Stamps that are computed from the arrivals are at most this much before the arrival, ns. This limits their
# error after a change of the rate.
MAX_LAG_NS = 200_000_000
# A rate is computed only from images over at least MIN_SPAN_NS, and from at least MIN_IMAGES images.
MIN_SPAN_NS, MIN_IMAGES = NS // 2, 8
# If the rate of the stream's times differs from real time by more than the share MAX_ERROR, its times are not
# used. They are used again when the difference is below MIN_ERROR.
MAX_ERROR, MIN_ERROR = 0.02, 0.01
# Jitter of the arrivals can look like another rate. Therefore JITTER * (spread of the arrivals) / (time over
# which the rate is computed) is added to MAX_ERROR.
JITTER = 1.5
# A wrong rate is reported only if it was computed over at least this time. The same time is necessary before
# the stream's times are used again.
REPORTED_SPAN_NS = 4 * NS
# At the start a stream may deliver stored images all at once. Their delays shrink from image to image. Images
# are skipped until the shortest delay is stable: for SETTLED_NS it must not shrink by more than
# SETTLED_TOLERANCE_NS. No image is skipped later than SETTLE_LIMIT_NS after the first one.
SETTLED_NS, SETTLED_TOLERANCE_NS, SETTLE_LIMIT_NS = 300_000_000, 20_000_000, 800_000_000


class ArrivalClock:
    """Gives each image of a live stream a stamp on the clock of arrival, without the network's jitter.

    The stamp is the image's time in the stream plus the shortest delay of the last 10 s, so that stamps keep
    the exact distances of the stream's times. If the stream's clock steps, or one image has a wrong time, the
    times are corrected first (`ClockSteps`).

    The times of some cameras follow the nominal frame rate instead of the true one. If the rate of the
    stream's times differs from the rate of the arrivals by more than 2 %, stamps are computed from the
    arrivals: rate and offset are fitted to them.

    ``is_timed``: whether the stream has times. If not, the caller of `stamp_ns` computes ``own_ns`` from the
    image's number and the frame rate.
    """

    def __init__(self, is_timed: bool = True) -> None:
        self._is_timed = self._is_believed = is_timed
        self._steps = ClockSteps()
        # Arrival and delay of images in the last 10 s, ns; both grow, so the first delay is the shortest.
        self._delays: deque[tuple[int, int]] = deque()
        # Arrival of the last images, and their time in the stream, ns.
        self._pairs: deque[tuple[int, int]] = deque()
        self._last_ns = self._own_ns = 0  # stamp of the last image, and its time in the stream, ns
        self._late_ns: int | None = None  # arrival of the first of the images that arrive late, ns
        self._ready_ns: int | None = None  # `ready_ns` without its limit, ns; None before the first image
        self._limit_ns = 0  # largest possible value of `ready_ns`, ns
        self.own_rate: float | None = None
        """Rate of the stream's times, in seconds per second of arrival. None while this rate is about 1 or
        not known."""

    @property
    def ready_ns(self) -> int:
        """Time of arrival from which images may be used, ns. Images that arrive earlier may get a wrong
        stamp, because the shortest delay is not stable yet."""
        return 0 if self._ready_ns is None else min(self._ready_ns, self._limit_ns)

    @property
    def clock_steps(self) -> int:
        """How often the stream's clock has stepped."""
        return self._steps.found

    def stamp_ns(self, own_ns: int, arrived_ns: int) -> int:
        """Return the stamp of the next image on the clock of arrival, ns.

        ``own_ns``: the image's time in the stream, ns; ``arrived_ns``: its arrival, ns. Stamps never
        decrease, and are never after the arrival.
        """
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
        """Return the shortest delay of the last 10 s, including this image, ns, and update `ready_ns`."""
        delays, delay_ns = self._delays, arrived_ns - own_ns
        if self._ready_ns is None:
            self._ready_ns, self._limit_ns = arrived_ns + SETTLED_NS, arrived_ns + SETTLE_LIMIT_NS
        elif delays and delay_ns < delays[0][1] - SETTLED_TOLERANCE_NS and arrived_ns < self.ready_ns:
            self._ready_ns = arrived_ns + SETTLED_NS
            self._pairs.clear()
        if not delays or delay_ns - delays[0][1] <= DELAY_STEP_NS:
            self._late_ns = None
        elif self._late_ns is None and 0 < own_ns - self._own_ns < DELAY_STEP_NS:
            # The times continue evenly, so the clock was not set. After a pause, a connection delivers stored
            # images late.
            self._late_ns = arrived_ns
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
        """Return the expected arrival of this image, ns, from the rate of the last seconds.

        Also decides whether stamps are computed from the stream's times or from the arrivals
        (`_is_believed`).
        """
        pairs = self._pairs
        if pairs and not pairs[-1][1] < own_ns < pairs[-1][1] + DELAY_WINDOW_NS:
            pairs.clear()  # the stream's clock was set
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
                if span_ns >= REPORTED_SPAN_NS:
                    self.own_rate = 1.0 / rate
            elif error < MIN_ERROR and span_ns >= REPORTED_SPAN_NS:
                self._is_believed, self.own_rate = True, None
        if self._is_believed:
            return arrived_ns
        recent = [pair for pair in pairs if pair[0] >= arrived_ns - ARRIVAL_WINDOW_NS]
        rate, offset_ns, _ = _line(recent)
        return max(round(rate * own_ns + offset_ns), arrived_ns - MAX_LAG_NS)


def _line(pairs: deque[tuple[int, int]] | list[tuple[int, int]]) -> tuple[float, float, float]:
    """Fit the line arrival = rate * time in the stream + offset. Return rate, offset (ns) and spread (ns).

    ``pairs``: each image's arrival and its time in the stream, ns. The line is moved down until no arrival is
    below it. The spread is the largest distance of an arrival from this line.
    """
    arrived_0, own_0 = pairs[-1]
    arrived, own = np.array([(a - arrived_0, o - own_0) for a, o in pairs], np.float64).T
    middle = own - own.mean()
    square = float(middle @ middle)
    rate = float(middle @ arrived) / square if square else 1.0
    over = arrived - rate * own
    return rate, float(over.min()) + arrived_0 - rate * own_0, float(np.ptp(over))
