"""Corrects the times of a live stream where its clock steps. Pure: times in, times out, all in ns."""

from __future__ import annotations

from collections import deque
from statistics import median

# The period is the median of so many steps; with fewer than the second number it is not known.
STEPS, MIN_STEPS = 16, 4
# A step that differs from the period by more, also in periods, is none of the camera.
MIN_CLOCK_STEP_NS, MIN_CLOCK_STEP = 60_000_000, 1.5
# A step of more periods is a gap in the stream, where the clock may have been set too.
GAP = 2.5
# Over which time the arrivals behind it are looked at, and the least share of what the gap lacks that counts.
CHECK_NS, MIN_SHARE = 400_000_000, 0.5


class ClockSteps:
    """Finds where a stream's clock steps, by its own period and by the arrivals, which go on evenly.

    A camera's clock is set, a sender's report corrects it, or the time of a single image is wrong: then the
    image before or behind shows what the time would be, and the former clock is taken again where it fits.
    """

    def __init__(self) -> None:
        self._steps: deque[int] = deque(maxlen=STEPS)
        self._own_ns = self._corrected_ns = self._arrived_ns = 0
        self._is_first = True
        self._correction_ns = self._former_ns = 0
        self._checked: tuple[int, int, int] | None = None  # end, what the gap lacks, shortest delay before
        self._shortest_ns: int | None = None  # delay since the gap
        self.found = 0
        """Steps so far; a wrong time of one image counts as one."""

    def corrected_ns(self, own_ns: int, arrived_ns: int, shortest_ns: int | None) -> int:
        """Return an image's time as if the clock had not stepped. ``shortest_ns``: the shortest delay from
        corrected times to arrivals."""
        step_ns, elapsed_ns = own_ns - self._own_ns, arrived_ns - self._arrived_ns
        is_first, self._is_first = self._is_first, False
        self._own_ns, self._arrived_ns = own_ns, arrived_ns
        if not is_first and len(self._steps) >= MIN_STEPS:
            period_ns = round(median(self._steps))
            # A gap of the arrivals may be one of the images, or of the network alone.
            longest_ns = max(period_ns, elapsed_ns)
            # No image arrives earlier than the fastest one: such a time is ahead.
            delay_ns = arrived_ns - own_ns - self._correction_ns
            is_early = shortest_ns is not None and delay_ns < shortest_ns - MIN_CLOCK_STEP_NS
            self._follow(own_ns, step_ns, period_ns, longest_ns, is_early)
            lacking_ns = elapsed_ns - step_ns
            if shortest_ns is not None and step_ns > GAP * period_ns and lacking_ns > MIN_CLOCK_STEP_NS:
                self._checked = arrived_ns + CHECK_NS, lacking_ns, shortest_ns
                self._shortest_ns = None
            self._check(own_ns, arrived_ns)
        corrected_ns = own_ns + self._correction_ns
        if not is_first and corrected_ns > self._corrected_ns:
            self._steps.append(corrected_ns - self._corrected_ns)
        self._corrected_ns = corrected_ns
        return corrected_ns

    def _follow(self, own_ns: int, step_ns: int, period_ns: int, longest_ns: int, is_early: bool) -> None:
        """Change the correction where the clock steps. The true step is the period, or ``longest_ns``."""

        def error_ns(correction_ns: int) -> int:
            found_ns = own_ns + correction_ns - self._corrected_ns
            return max(period_ns - found_ns, found_ns - longest_ns, 0)

        if error_ns(self._former_ns) < error_ns(self._correction_ns):
            self._correction_ns, self._checked = self._former_ns, None  # one image had a wrong time
            return
        least_ns = max(MIN_CLOCK_STEP_NS, round(MIN_CLOCK_STEP * period_ns))
        is_back = step_ns <= 0 or period_ns - step_ns > max(MIN_CLOCK_STEP_NS, period_ns / 2)
        if is_back or (is_early and step_ns > longest_ns + least_ns):
            self.found += 1
            self._former_ns = self._correction_ns
            self._correction_ns = self._corrected_ns + longest_ns - own_ns

    def _check(self, own_ns: int, arrived_ns: int) -> None:
        """After a gap of the stream, in which its clock may be set back by less than the gap: return whether
        the next images come as early as before."""
        if self._checked is None:
            return
        end_ns, lacking_ns, before_ns = self._checked
        delay_ns = arrived_ns - own_ns - self._correction_ns
        self._shortest_ns = delay_ns if self._shortest_ns is None else min(self._shortest_ns, delay_ns)
        if arrived_ns < end_ns:
            return
        self._checked = None
        later_ns = self._shortest_ns - before_ns
        if later_ns > MIN_SHARE * lacking_ns:
            self._correction_ns += later_ns
            self._former_ns = self._correction_ns
            self.found += 1
