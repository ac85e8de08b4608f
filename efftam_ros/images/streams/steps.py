"""Corrects the times of a live stream when its clock steps. All times are ns."""

from __future__ import annotations

from collections import deque
from statistics import median

# The period is the median of the last STEPS steps between images. It is not known before there are MIN_STEPS.
STEPS, MIN_STEPS = 16, 4
# The clock stepped forward if a step of the times is too long by more than MIN_CLOCK_STEP_NS, ns, and by more
# than MIN_CLOCK_STEP periods. For a step back see `_follow`.
MIN_CLOCK_STEP_NS, MIN_CLOCK_STEP = 60_000_000, 1.5
# A step of more than this many periods is a gap in the stream. In a gap the clock may have been set too.
GAP = 2.5
# After a gap, the shortest delay of the next CHECK_NS is compared with the shortest delay before the gap. The
# gap may be longer in the arrivals than in the stream's times. The clock was set if the delay grew by more
# than the share MIN_SHARE of this difference.
CHECK_NS, MIN_SHARE = 400_000_000, 0.5


class ClockSteps:
    """Detects steps of a stream's clock, by the stream's period and by the arrivals, and corrects the times.

    The clock steps if a camera's clock is set, or a sender's report corrects it. Then all later times are
    shifted, so that they continue the earlier ones. If only a single image had a wrong time, the next image
    fits the times before, and the shift is taken back.
    """

    def __init__(self) -> None:
        # Steps between the corrected times of consecutive images.
        self._steps: deque[int] = deque(maxlen=STEPS)
        # Time in the stream, corrected time and arrival of the last image.
        self._own_ns = self._corrected_ns = self._arrived_ns = 0
        self._is_first = True
        # `_correction_ns` is added to the times in the stream; `_former_ns` was added before the last step of
        # the clock.
        self._correction_ns = self._former_ns = 0
        # Three numbers while the images after a gap are checked: the arrival at which the check ends; by how
        # much the gap in the arrivals is longer than the gap in the times; the shortest delay before the gap.
        self._checked: tuple[int, int, int] | None = None
        self._shortest_ns: int | None = None  # shortest delay of the images since the gap
        self.found = 0
        """How many steps were found. A wrong time of one image counts as one step."""

    def corrected_ns(self, own_ns: int, arrived_ns: int, shortest_ns: int | None) -> int:
        """Return the time that the next image would have if the clock had never stepped.

        ``own_ns``: the image's time in the stream; ``arrived_ns``: its arrival; ``shortest_ns``: the shortest
        delay of the last images, from corrected time to arrival, or None.
        """
        step_ns, elapsed_ns = own_ns - self._own_ns, arrived_ns - self._arrived_ns
        is_first, self._is_first = self._is_first, False
        self._own_ns, self._arrived_ns = own_ns, arrived_ns
        if not is_first and len(self._steps) >= MIN_STEPS:
            period_ns = round(median(self._steps))
            # If the arrivals have a gap, images may be missing, or the network only delayed them. So the true
            # step lies between the period and `longest_ns`.
            longest_ns = max(period_ns, elapsed_ns)
            # A delay below the shortest one is impossible: the image's time is too late.
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
        """Change the correction if the clock stepped at this image.

        ``own_ns``: the image's time; ``step_ns``: its step from the last image; the true step lies between
        ``period_ns`` and ``longest_ns``; ``is_early``: whether the image arrived earlier than its time
        allows.
        """

        def error_ns(correction_ns: int) -> int:
            found_ns = own_ns + correction_ns - self._corrected_ns
            return max(period_ns - found_ns, found_ns - longest_ns, 0)

        if error_ns(self._former_ns) < error_ns(self._correction_ns):
            # The image fits the times before the last step, so this step was only one image's wrong time.
            self._correction_ns, self._checked = self._former_ns, None
            return
        least_ns = max(MIN_CLOCK_STEP_NS, round(MIN_CLOCK_STEP * period_ns))
        is_back = step_ns <= 0 or period_ns - step_ns > max(MIN_CLOCK_STEP_NS, period_ns / 2)
        if is_back or (is_early and step_ns > longest_ns + least_ns):
            self.found += 1
            self._former_ns = self._correction_ns
            self._correction_ns = self._corrected_ns + longest_ns - own_ns

    def _check(self, own_ns: int, arrived_ns: int) -> None:
        """Correct a backward step of the clock during a gap of the stream.

        If the step is shorter than the gap, the times still grow, and `_follow` can't detect the step. But
        the step makes all delays after the gap longer than before. The delays are compared when `CHECK_NS`
        has passed.
        """
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
