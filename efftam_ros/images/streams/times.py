"""Computes the stamps of a file's images from their times in the file. All times are ns.

A time is wrong if it is missing, equals the previous one, or does not fit between the times around it. It is
then replaced by a value between those. If all later times are smaller, because parts of a film were joined or
the recorder's clock was set back, all later times are shifted.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import pairwise
from statistics import median
from typing import Protocol, TypeVar

# How many later and how many earlier images are used to decide whether an image's time is right.
AHEAD, BEFORE = 8, 8
# The period is the median of the last STEPS steps between stamps.
STEPS = 16
# A time is right, without a look at later images, if it differs from the expected time by less than this
# share of a period.
EXPECTED_SHARE = 0.25
# Some of the next times may be too small, until a later time fits again. Then either the small times are
# wrong, or the clock was set back. The clock was set back if less than MIN_SHARE periods per image lie
# between the last stamp and the time that fits.
MIN_SHARE = 0.6
# If the times step back by at most MAX_CLOCK_STEP_NS, the recorder's clock was set. The shift that
# compensates the step is then reduced again: with each image by the share RETURN_SHARE of a period.
MAX_CLOCK_STEP_NS, RETURN_SHARE = 1_000_000_000, 0.1
# Two times are equal if they differ by less than MIN_STEP_NS, or by less than the share MIN_STEP_SHARE of a
# period, whichever is shorter.
MIN_STEP_NS, MIN_STEP_SHARE = 500_000, 0.25
# Smaller times at the end of a file are a restart of the times only if there are at least this many.
MIN_RESTART = 3
# The unevenness of a step is its difference from one period, in periods, limited to this value.
MAX_UNEVENNESS = 10.0


class Timed(Protocol):
    """An image, as `FileTimes` and `DisplayOrder` need it.

    ``number``: place of its packet in the order of decoding; ``own_ns``: its time in the stream, ns, or None.
    """

    @property
    def number(self) -> int: ...
    @property
    def own_ns(self) -> int | None: ...


class Sent(Timed, Protocol):
    """An image of a live stream.

    ``sent_ns``: decoding time of the packet that made the decoder return the image, ns, or None.
    """

    @property
    def sent_ns(self) -> int | None: ...


Item = TypeVar("Item", bound=Timed)


class DisplayOrder:
    """Detects a stream that stores only decoding times, in place of the times of display.

    Some containers can't store times of display. If such a stream has reordered images (B frames), its times
    do not grow in the order of display. Only then must they be replaced.
    """

    def __init__(self) -> None:
        # The last images: number of the image's packet, and the image's time in the stream, ns.
        self._past: deque[tuple[int, int]] = deque(maxlen=BEFORE)

    def is_wrong(self, images: Iterable[Timed]) -> bool:
        """Return whether the times in the stream are decoding times.

        They are decoding times if they decrease less often in the order of decoding than in the order of
        display. ``images``: the next images in the order of display; they are examined together with the last
        images that were passed to `add`.
        """
        known = [*self._past, *((i.number, i.own_ns) for i in images if i.own_ns is not None)]
        return _descents([own for _, own in known]) > _descents([own for _, own in sorted(known)])

    def add(self, image: Timed) -> None:
        """Record the next image in the order of display."""
        if image.own_ns is not None:
            self._past.append((image.number, image.own_ns))

    def time_ns(self, image: Sent) -> int | None:
        """Record the next live image and return its time, ns, or None if it has no time.

        This is the time of display if the stream contains times of display. Otherwise it is the decoding time
        of the packet that made the decoder return the image. This decoding time differs from the time of
        display by a constant.
        """
        self.add(image)
        return image.sent_ns if self.is_wrong(()) else image.own_ns


class FileTimes:
    """Gives the images of a file stamps that grow, and are never negative.

    ``period_ns``: the expected step between images, ns; ``start_ns``: the time at which the track begins, as
    the container states it, ns, or None; ``ahead``: how many later images are examined before an image gets
    its stamp.
    """

    def __init__(self, period_ns: int, start_ns: int | None = None, ahead: int = AHEAD) -> None:
        self._ahead = ahead
        self._steps: deque[int] = deque([max(1, period_ns)] * STEPS, STEPS)
        self._start_ns = start_ns
        self._order = DisplayOrder()
        # Times from the file for the images that have no stamp yet, sorted, ns.
        self._unused: list[int] = []
        # Difference that is subtracted from decoding times when they replace times of display, ns. None
        # before the first such time.
        self._delay_ns: int | None = None
        self._last_ns: int | None = None  # stamp of the last image, without `moved_ns`
        self._is_known = False  # whether a time from the file was used for any image
        self._shift_ns = 0  # added to the times from the file, ns
        self._clock_shift_ns = 0  # the part of `_shift_ns` that is reduced again, image by image
        self.moved_ns = 0
        """Time that is added to all stamps, ns, so that the first stamp is not negative."""
        self.mended = 0
        """How many images had a missing or wrong time."""
        self.restarts = 0
        """How often the times restarted, or the clock was set back."""

    @property
    def reached_ns(self) -> int | None:
        """The last image's time on the file's own clock, ns; None before the first image and after a restart
        of the times."""
        return None if self._last_ns is None or self.restarts else self._last_ns

    def stamped(self, images: Iterable[Item]) -> Iterator[tuple[int, Item]]:
        """Yield each image with its stamp, ns.

        If ``images`` raises an error, the images before it are yielded first.
        """
        source, waiting, fault = iter(images), deque[Item](), None
        is_over = False
        while True:
            while not is_over and len(waiting) <= self._ahead:
                try:
                    image = next(source)
                except StopIteration:
                    is_over = True
                except Exception as error:
                    is_over, fault = True, error
                else:
                    waiting.append(image)
                    if image.own_ns is not None:
                        insort(self._unused, image.own_ns)
            if not waiting:
                break
            stamp_ns = self._stamp(waiting)
            yield stamp_ns, waiting.popleft()
        if fault is not None:
            raise fault

    def _stamp(self, waiting: deque[Item]) -> int:
        """Return the stamp of the first image in ``waiting``, ns."""
        first, times = waiting[0], self._display_times(waiting)
        self._order.add(first)
        stamp_ns = self._checked(times)
        if self._last_ns is not None:
            self._steps.append(stamp_ns - self._last_ns)
        elif stamp_ns < 0:
            self.moved_ns = -stamp_ns
        self._last_ns = stamp_ns
        return stamp_ns + self.moved_ns

    def _display_times(self, waiting: deque[Item]) -> list[int | None]:
        """Return the times of display of the images in ``waiting``, ns, and remove the first one's time from
        `_unused`.

        If the stream has only decoding times, these are sorted: the first image gets the smallest unused one.
        """
        if not self._order.is_wrong(waiting):
            own_ns = waiting[0].own_ns
            if own_ns is not None:
                del self._unused[bisect_left(self._unused, own_ns)]
            return [image.own_ns for image in waiting]
        times = self._unused[: len(waiting)]
        if not times:
            return [None] * len(waiting)
        del self._unused[0]
        if self._delay_ns is None:
            is_first = self._last_ns is None and self._start_ns is not None
            self._delay_ns = times[0] - self._start_ns if is_first and self._start_ns is not None else 0
        return [time - self._delay_ns for time in times]

    def _checked(self, times: list[int | None]) -> int:
        """Return the first of ``times`` plus `_shift_ns`, ns, or a replacement if this time is wrong.

        ``times``: times from the file for the next images, ns, in the order of display.
        """
        period_ns, last_ns = round(median(self._steps)), self._last_ns
        self._take_shift_back(times[0], period_ns)
        shifted = [None if time is None else time + self._shift_ns for time in times]
        own_ns = shifted[0]
        is_expected = (
            own_ns is not None
            and last_ns is not None
            and abs(own_ns - last_ns - period_ns) < EXPECTED_SHARE * period_ns
        )
        if own_ns is not None and (is_expected or _are_even([last_ns, *shifted], period_ns)):
            self._is_known = True
            return own_ns
        chain = _chain(shifted, last_ns, period_ns)
        if last_ns is not None and self._is_set_back(shifted, chain, period_ns):
            free = _chain(shifted, None, period_ns)
            if len(free) < MIN_RESTART:
                self.mended += 1
                return last_ns + period_ns
            # Shift all later times, so that the first of them continues the times of the images before.
            place, time_ns = free[0]
            step_ns = last_ns + (place + 1) * period_ns - time_ns
            self._shift_ns += step_ns
            if self._is_known:
                self.restarts += 1
                self._clock_shift_ns += step_ns if step_ns <= MAX_CLOCK_STEP_NS else 0
            self._is_known = True
            self.mended += place > 0
            return last_ns + period_ns
        if chain and chain[0][0] == 0:
            self._is_known = True
            return chain[0][1]
        self.mended += 1
        if not chain:
            return 0
        place, time_ns = chain[0]
        return (
            time_ns - place * period_ns if last_ns is None else last_ns + (time_ns - last_ns) // (place + 1)
        )

    def _is_set_back(self, times: list[int | None], chain: list[tuple[int, int]], period_ns: int) -> bool:
        """Return whether all times from now on are too early, because the clock was set back.

        If not, only single times are wrong. ``times``: the next times, shifted; ``chain``: those of them that
        fit, see `_chain`.
        """
        if not chain:
            return True
        (place, time_ns), last_ns = chain[0], self._last_ns
        if place == 0 or last_ns is None:
            return False
        is_tight = time_ns - last_ns < MIN_SHARE * (place + 1) * period_ns
        # If the times that do not fit grow too, they are right: the clock was set back before them.
        before = [time for time in times[: place + 1] if time is not None]
        return is_tight and len(before) == place + 1 and _descents(before) == 0 and len(set(before)) > place

    def _take_shift_back(self, time_ns: int | None, period_ns: int) -> None:
        """Reduce the shift that follows from a step of the clock, or end it if the clock stepped forward
        again.

        ``time_ns``: time from the file for the next image, ns, or None.
        """
        last_ns, shift_ns = self._last_ns, self._shift_ns
        if time_ns is None or last_ns is None or not shift_ns:
            return

        def is_next(shift_ns: int) -> bool:
            return abs(time_ns + shift_ns - last_ns - period_ns) < period_ns / 2

        if is_next(0) and not is_next(shift_ns):  # the clock was set forward again: no shift is needed
            self._shift_ns = self._clock_shift_ns = 0
        elif self._clock_shift_ns > 0:
            back_ns = min(self._clock_shift_ns, round(RETURN_SHARE * period_ns))
            self._shift_ns -= back_ns
            self._clock_shift_ns -= back_ns


def _are_even(times: list[int | None], period_ns: int) -> bool:
    """Return whether all times are known and grow. A None in the first place is allowed."""
    known = [time for time in times if time is not None]
    least_ns = _least_step_ns(period_ns)
    is_whole = len(known) == len(times) - (times[0] is None)
    return is_whole and all(b > a + least_ns for a, b in pairwise(known))


def _least_step_ns(period_ns: int) -> float:
    """Return the largest difference of two times that count as equal, ns."""
    return min(MIN_STEP_NS, MIN_STEP_SHARE * period_ns)


def _descents(times: list[int]) -> int:
    """Return how many times are smaller than the one before."""
    return sum(b < a for a, b in pairwise(times))


def _chain(times: list[int | None], last_ns: int | None, period_ns: int) -> list[tuple[int, int]]:
    """Return the longest selection of ``times`` in which each time is larger than the one before.

    Each time is returned with its index in ``times``. All are larger than ``last_ns``, the time of the last
    image, unless that is None. Of several longest selections, the one with the most even steps is returned.
    """
    found: list[tuple[int, int]] = [] if last_ns is None else [(-1, last_ns)]
    least_ns = _least_step_ns(period_ns)
    found += [(place, time) for place, time in enumerate(times) if time is not None]
    # For each time, the best selection that ends with this time. Each entry has the length of the selection,
    # its unevenness as a negative number, and the index of the time before (-1 if there is none).
    best: list[tuple[int, float, int]] = []
    for index, (place, time) in enumerate(found):
        options = [(0 if last_ns is None or index == 0 else -len(found), 0.0, -1)]
        for before in range(index):
            was, then = found[before]
            if time > then + least_ns:
                steps = (time - then) / ((place - was) * period_ns)
                unevenness = min(abs(steps - 1.0), MAX_UNEVENNESS)
                options.append((best[before][0] + 1, best[before][1] - unevenness, before))
        best.append(max(options))
    if not best:
        return []
    index = max(range(len(best)), key=lambda i: best[i][:2])
    chain = []
    while index >= 0:
        chain.append(found[index])
        index = best[index][2]
    chain.reverse()
    return chain if last_ns is None else chain[1:]
