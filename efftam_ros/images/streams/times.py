"""Stamps of the images of a file: their own times, checked against each other. Pure: times in, times out, ns.

What is wrong is replaced, by the times around it: a time that is missing, equal to the one before or between
others where it can't be. Where all later times are less, as of parts that were joined or a clock that was set
back, they are shifted.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import pairwise
from statistics import median
from typing import Protocol, TypeVar

# Images behind and before one that decide whether its time is right.
AHEAD, BEFORE = 8, 8
# The period is the median of so many steps.
STEPS = 16
# A time that differs by less of a period from what is expected is right, whatever follows.
EXPECTED_SHARE = 0.25
# Later images that would have to share less than so many of their periods show that the clock was set back.
MIN_SHARE = 0.6
# A smaller step back is one of the recorder's clock: its shift is taken back, by this share of each period.
MAX_CLOCK_STEP_NS, RETURN_SHARE = 1_000_000_000, 0.1
# Times that are nearer to each other, also in periods, are taken for equal.
MIN_STEP_NS, MIN_STEP_SHARE = 500_000, 0.25
# Fewer times at the end of a file do not show that they begin anew.
MIN_RESTART = 3
# A step counts as uneven up to so many periods.
MAX_UNEVENNESS = 10.0


class Timed(Protocol):
    """An image in the order of display: its place in the order of decoding, and its own time."""

    @property
    def number(self) -> int: ...
    @property
    def own_ns(self) -> int | None: ...


class Sent(Timed, Protocol):
    """A live image: the decoding time of the packet that completed it, too."""

    @property
    def sent_ns(self) -> int | None: ...


Item = TypeVar("Item", bound=Timed)


class DisplayOrder:
    """Detects a stream whose times are those of decoding alone.

    Some containers store no others. Where images are reordered, these go back and forth in the order of
    display, and only then.
    """

    def __init__(self) -> None:
        self._past: deque[tuple[int, int]] = deque(maxlen=BEFORE)  # number and own time of those before

    def is_wrong(self, images: Iterable[Timed]) -> bool:
        """Return whether these images' own times, and those of before, grow in the order of decoding
        alone."""
        known = [*self._past, *((i.number, i.own_ns) for i in images if i.own_ns is not None)]
        return _descents([own for _, own in known]) > _descents([own for _, own in sorted(known)])

    def add(self, image: Timed) -> None:
        if image.own_ns is not None:
            self._past.append((image.number, image.own_ns))

    def time_ns(self, image: Sent) -> int | None:
        """Return the time of a live image: its own, or that of decoding, which is a constant time before."""
        self.add(image)
        return image.sent_ns if self.is_wrong(()) else image.own_ns


class FileTimes:
    """Gives the images of a file stamps that grow, from 0 on or later.

    ``period_ns``: the expected step; ``start_ns``: the time at which the track begins by the container,
    where it has one; ``ahead``: images that are looked at before one gets its stamp.
    """

    def __init__(self, period_ns: int, start_ns: int | None = None, ahead: int = AHEAD) -> None:
        self._ahead = ahead
        self._steps: deque[int] = deque([max(1, period_ns)] * STEPS, STEPS)
        self._start_ns = start_ns
        self._order = DisplayOrder()
        self._unused: list[int] = []  # own times that no image before had, in order
        self._delay_ns: int | None = None  # of decoding times, as they are taken for those of display
        self._last_ns: int | None = None
        self._is_known = False  # whether a time of the file was taken so far
        self._shift_ns = 0
        self._clock_shift_ns = 0  # the part of the shift that is taken back
        self.moved_ns = 0
        """What is added to all times, as they begin below 0."""
        self.mended = 0
        """Images whose own time was missing or wrong."""
        self.restarts = 0
        """How often the times restarted, or the clock was set back."""

    @property
    def reached_ns(self) -> int | None:
        """The last image's stamp on the file's own clock; None where this is not known."""
        return None if self._last_ns is None or self.restarts else self._last_ns

    def stamped(self, images: Iterable[Item]) -> Iterator[tuple[int, Item]]:
        """Yield the images with their stamps. An error of ``images`` is raised behind those that came
        before."""
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
        """Return the stamp of the first of these images."""
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
        """Return the times of these images in the order of display. Of times of decoding the first image has
        the smallest that is left."""
        if not self._order.is_wrong(waiting):
            own_ns = waiting[0].own_ns
            if own_ns is not None:
                del self._unused[bisect_left(self._unused, own_ns)]
            return [image.own_ns for image in waiting]
        times = self._unused[: len(waiting)]
        if times:
            del self._unused[0]
        if self._delay_ns is None:
            is_first = self._last_ns is None and self._start_ns is not None
            self._delay_ns = times[0] - self._start_ns if is_first and self._start_ns is not None else 0
        return [time - self._delay_ns for time in times]

    def _checked(self, times: list[int | None]) -> int:
        """Return the first of these times, or what it should be. On the file's clock, with shifts."""
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
            # The first of them goes on where the last image was.
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
        """Return whether all times from now on are too early, not some of them."""
        if not chain:
            return True
        (place, time_ns), last_ns = chain[0], self._last_ns
        if place == 0 or last_ns is None:
            return False
        is_tight = time_ns - last_ns < MIN_SHARE * (place + 1) * period_ns
        # Also those that would be left out follow each other well.
        before = [time for time in times[: place + 1] if time is not None]
        return is_tight and len(before) == place + 1 and _descents(before) == 0 and len(set(before)) > place

    def _take_shift_back(self, time_ns: int | None, period_ns: int) -> None:
        last_ns, shift_ns = self._last_ns, self._shift_ns
        if time_ns is None or last_ns is None or not shift_ns:
            return

        def is_next(shift_ns: int) -> bool:
            return abs(time_ns + shift_ns - last_ns - period_ns) < period_ns / 2

        if is_next(0) and not is_next(shift_ns):  # the clock was set forward again
            self._shift_ns = self._clock_shift_ns = 0
        elif self._clock_shift_ns > 0:
            back_ns = min(self._clock_shift_ns, round(RETURN_SHARE * period_ns))
            self._shift_ns -= back_ns
            self._clock_shift_ns -= back_ns


def _are_even(times: list[int | None], period_ns: int) -> bool:
    """Return whether nothing is to be mended: all of these times, the first of which may be missing, grow."""
    known = [time for time in times if time is not None]
    least_ns = _least_step_ns(period_ns)
    is_whole = len(known) == len(times) - (times[0] is None)
    return is_whole and all(b > a + least_ns for a, b in pairwise(known))


def _least_step_ns(period_ns: int) -> float:
    return min(MIN_STEP_NS, MIN_STEP_SHARE * period_ns)


def _descents(times: list[int]) -> int:
    return sum(b < a for a, b in pairwise(times))


def _chain(times: list[int | None], last_ns: int | None, period_ns: int) -> list[tuple[int, int]]:
    """Return as many of these times as grow, above ``last_ns``, as place and time; of several such choices
    the one with the most even steps."""
    found: list[tuple[int, int]] = [] if last_ns is None else [(-1, last_ns)]
    least_ns = _least_step_ns(period_ns)
    found += [(place, time) for place, time in enumerate(times) if time is not None]
    best: list[tuple[int, float, int]] = []  # length, less the unevenness; the one before
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
