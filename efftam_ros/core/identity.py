"""Whether what is followed is still what was selected: its likeness to templates, over time.

A pipeline keeps templates of the target's appearance and tells the likeness of each candidate to them
(`Candidates.likeness`). The first template is the prompted frame's and stays. The others are renewed in turn
from confirmed frames, because a target may turn; each counts only once it is old enough: everything is like
itself a moment ago, also what has just taken the target's place.
"""

from __future__ import annotations

import math

from efftam_ros.core.types import Candidates

RENEWAL_NS = 500_000_000
"""Time between renewals, and the age from which a renewed template counts."""
UNLIKE, SCALE = 0.35, 0.1
"""Likeness below which a measured box counts as unlike the target, and how far below it counts fully. In 59
sequences 1 % of the right boxes are below 0.50; what covers a target, and the ground beside it, have 0.2 to
0.4."""
MOST_UNLIKE_S = 0.3
"""Time of being unlike after which a track is given up; time of being like counts up to twice against it."""
MOST_STEP_S = 0.2
"""Most that one image counts."""


class Identity:
    """The templates of one target, and for how long what is followed has been unlike all of them."""

    def __init__(self, templates: int = 0, stamp_ns: int = 0) -> None:
        """``templates``: how many the pipeline keeps; ``stamp_ns``: of the prompted frame."""
        self._taken: list[int | None] = [stamp_ns, *[None] * templates][:templates]
        self._stamp_ns, self._dt_s = stamp_ns, 0.0
        self.restart()

    def begin(self, stamp_ns: int) -> None:
        """Start the next image."""
        self._dt_s = min(max((stamp_ns - self._stamp_ns) * 1e-9, 0.0), MOST_STEP_S)
        self._stamp_ns = stamp_ns

    def restart(self) -> None:
        """The track was given up, or the target found again."""
        self._unlike_s = 0.0
        self.like_ns = self._stamp_ns
        """Stamp of the last image before it became unlike."""

    def likeness(self, candidates: Candidates, index: int) -> float:
        """The best likeness of a candidate to the templates that count, -1..1; NaN where there is none."""
        if candidates.likeness is None or not self._taken:
            return math.nan
        values = candidates.likeness[index].tolist()
        counts = (
            taken is not None and (number == 0 or self._stamp_ns - taken >= RENEWAL_NS)
            for number, taken in enumerate(self._taken)
        )
        known = [value for value, does in zip(values, counts, strict=True) if does and value == value]
        return max(known, default=math.nan)

    def has_drifted(self, likeness: float) -> bool:
        """Count the likeness of the box measured in this image of an unbroken track; whether the track is to
        be given up, because something else is followed."""
        if not math.isnan(likeness):
            share = min(max((UNLIKE - likeness) / SCALE, -2.0), 1.0)
            self._unlike_s = max(0.0, self._unlike_s + share * self._dt_s)
        if self._unlike_s == 0.0:
            self.like_ns = self._stamp_ns
        return self._unlike_s > MOST_UNLIKE_S

    def renew(self) -> int | None:
        """The template to take from this confirmed frame; None: none yet."""
        newest = max((taken for taken in self._taken if taken is not None), default=self._stamp_ns)
        if len(self._taken) < 2 or 0 <= self._stamp_ns - newest < RENEWAL_NS:
            return None
        oldest = min(range(1, len(self._taken)), key=lambda index: self._taken[index] or 0)
        self._taken[oldest] = self._stamp_ns
        return oldest
