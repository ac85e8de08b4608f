"""Likeness to the selected target: which templates of its appearance there are, and which of them count.

A pipeline keeps templates and tells the likeness of each candidate to them (`Candidates.likeness`). The first
is the prompted frame's and stays. The others are renewed in turn from confirmed frames, because a target may
turn; each counts only once it is old enough: everything is like itself a moment ago, also what has just taken
the target's place.

A calibration turns likeness, presence and predicted IoU of a measured box into the probability that it is
right.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from efftam_ros.core.types import Candidates

RENEWAL_NS = 500_000_000
"""Time between renewals, and the age from which a renewed template counts."""

MOST_LOGIT = 6.0
"""Presence is compared up to these log-odds; beyond them it tells nothing more."""


@dataclass(frozen=True)
class Calibration:
    """A logistic model of measured boxes: right (IoU with the target above 0.5) against wrong (below 0.1).

    Log-likelihood ratio: ``offset`` plus the weights times likeness, log-odds of presence (at most
    `MOST_LOGIT`) and predicted IoU. ``prior``: log-odds of right among the boxes that it was fitted to.
    """

    likeness: float
    presence: float
    quality: float
    offset: float
    prior: float

    def confidence(self, likeness: float, presence: float, quality: float) -> float:
        """The probability that a measured box is right, 0..1; NaN where its likeness is."""
        ratio = self.offset + self.likeness * likeness + self.quality * quality
        ratio += self.presence * presence_logit(presence)
        return 1.0 / (1.0 + math.exp(-min(max(ratio + self.prior, -50.0), 50.0)))


def presence_logit(presence: float) -> float:
    """The log-odds of a probability 0..1, at most `MOST_LOGIT`."""
    least = 1.0 / (1.0 + math.exp(MOST_LOGIT))
    known = min(max(presence, least), 1.0 - least)
    return math.log(known / (1.0 - known))


class Templates:
    """The templates of one target."""

    def __init__(self, count: int = 0, stamp_ns: int = 0) -> None:
        """``count``: how many the pipeline keeps; ``stamp_ns``: of the prompted frame."""
        self._taken: list[int | None] = [stamp_ns, *[None] * count][:count]

    def likeness(self, candidates: Candidates, index: int, stamp_ns: int) -> float:
        """The best likeness of a candidate to the templates that count, -1..1; NaN where there is none."""
        if candidates.likeness is None or not self._taken:
            return math.nan
        values = candidates.likeness[index].tolist()
        counts = (
            taken is not None and (number == 0 or stamp_ns - taken >= RENEWAL_NS)
            for number, taken in enumerate(self._taken)
        )
        known = [value for value, does in zip(values, counts, strict=True) if does and value == value]
        return max(known, default=math.nan)

    def renew(self, stamp_ns: int) -> int | None:
        """The template to take from a confirmed frame; None: none yet."""
        newest = max((taken for taken in self._taken if taken is not None), default=stamp_ns)
        if len(self._taken) < 2 or 0 <= stamp_ns - newest < RENEWAL_NS:
            return None
        oldest = min(range(1, len(self._taken)), key=lambda index: self._taken[index] or 0)
        self._taken[oldest] = stamp_ns
        return oldest
