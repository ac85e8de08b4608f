"""Stamps of messages as nanoseconds, and the images whose stamps can't be used."""

from __future__ import annotations

from collections import deque
from typing import Any

from efftam_ros.core.errors import InputError

NANOSECONDS = 1_000_000_000
# A stamp is ahead when it lies this far beyond what the arrivals allow, ns, and its step is this many times
# the longest of the last ones.
AHEAD_NS, STEPS = 250_000_000, 3
# Images that the judgement is based on, and the fewest that make a stream.
KEPT, FEWEST = 30, 5


def stamp_ns(stamp: Any) -> int:
    """Convert a builtin_interfaces/Time to integer nanoseconds."""
    return int(stamp.sec) * NANOSECONDS + int(stamp.nanosec)


def stamp_like(stamp: Any, ns: int) -> Any:
    """Convert nanoseconds to a message of the same class as ``stamp``."""
    return type(stamp)(sec=ns // NANOSECONDS, nanosec=ns % NANOSECONDS)


class StampGuard:
    """Withholds an image whose stamp goes back, or ahead of its arrival, in a steady stream.

    When the next image goes on from the withheld one, the clock was set, or a bag began again: its stamps are
    taken from then on.
    """

    def __init__(self) -> None:
        self._offsets: deque[int] = deque(maxlen=KEPT)  # stamp - arrival
        self._steps: deque[int] = deque(maxlen=KEPT)
        self._last_ns = 0
        self._withheld_ns: int | None = None  # stamp of the image before, if that was withheld

    def check(self, stamp_ns: int, arrived_ns: int) -> None:
        """Take the next image; raises InputError when it is withheld. ``arrived_ns``: arrival on a steady
        clock, or the recording time in a bag."""
        offset_ns = stamp_ns - arrived_ns
        wrong_ns = self._wrong_ns(stamp_ns, offset_ns)
        if wrong_ns:
            before, self._withheld_ns = self._withheld_ns, stamp_ns
            if before is None or stamp_ns <= before:
                where = "ahead of the arrival of its image" if wrong_ns > 0 else "before that of the last one"
                raise InputError(
                    f"the stamp {stamp_ns * 1e-9:.3f} s is {abs(wrong_ns) * 1e-9:.3f} s {where}: the image is"
                    " not used; correct the driver's stamps"
                )
            # The second image in a row that goes on like this: the clock was set.
            self._offsets.clear()
            self._steps.clear()
        elif self._offsets:
            self._steps.append(stamp_ns - self._last_ns)
        self._withheld_ns, self._last_ns = None, stamp_ns
        self._offsets.append(offset_ns)

    def _wrong_ns(self, stamp_ns: int, offset_ns: int) -> int:
        """How far the stamp is ahead, or back if negative; 0 when it can be."""
        if len(self._offsets) < FEWEST:
            return 0
        step_ns = stamp_ns - self._last_ns
        if step_ns < 0:
            return step_ns
        # Images may arrive late, never early: the least delayed one shows the clocks' offset.
        ahead_ns = offset_ns - max(self._offsets)
        return ahead_ns if ahead_ns > AHEAD_NS and step_ns > STEPS * max(self._steps) else 0
