"""What is known of a target's looks and of what is beside it, when looks are learnt by continuity.

What is followed without interruption and without doubt is the target, however unlike the kept looks it is:
else a target that turns is a stranger for ever. `core.gallery` learns by likeness; this is what the judge is
fitted with.
"""

from __future__ import annotations

import math
from collections import deque
from statistics import median

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
"""Of length 1, or [n, D] of several; NaN where nothing can be said."""

LOOK_NS = 200_000_000
"""Time between two looks at a followed target, and at what is beside it, ns. In doubt each image is looked
at."""
SAME = 0.85
"""Likeness from which a look adds nothing."""
MAX_KEPT = 6
"""Kept looks, the selected one among them: two or three sides of a target, in two lights."""
LEARN_NS = 800_000_000
"""Time without doubt after a look until it is learnt, ns: a passer-by hides the target for half a second."""
USUAL_LOOKS, AROUND_LOOKS = 30, 48
"""Looks at the target that its usual likeness is the median of; boxes beside it that are known."""
MIN_AROUND, AROUND_SHARE = 8, 0.95
"""Fewest boxes beside the target that say something, and the share of them below the likeness around."""


class Gallery:
    """What is known of a target's looks.

    A look is learnt by continuity: what is followed without interruption and without doubt is the target,
    however unlike the kept looks it is.
    """

    def __init__(self) -> None:
        self._kept: list[Vector] = []
        self._usual: deque[float] = deque(maxlen=USUAL_LOOKS)
        self._around: deque[float] = deque(maxlen=AROUND_LOOKS)
        self._asked_ns: int | None = None
        self._last: Vector | None = None  # the look before
        self._waiting: tuple[int, Vector] | None = None  # stamp, and a look to be kept if no doubt follows
        self.likeness_now = math.nan
        """Of the last look; NaN before any."""
        self.continuity_now = math.nan
        """Cosine of the last look with the one before; NaN where there is none without interruption."""

    def add_prompt(self, vector: Vector, stamp_ns: int) -> None:
        """Add the crop that was selected, or that a refinement showed."""
        if not np.isnan(vector[0]):
            self._kept.insert(0, vector)
            del self._kept[MAX_KEPT:]
            self._asked_ns = stamp_ns
            self.miss()
            self._last = vector

    def likeness(self, vector: Vector) -> float:
        """The best cosine with the kept vectors, -1..1; NaN where there is none."""
        if not self._kept or np.isnan(vector[0]):
            return math.nan
        return float(np.max(np.stack(self._kept) @ vector))

    def continuity(self, vector: Vector) -> float:
        """Cosine with the last look, -1..1; NaN where the target was missed since."""
        return math.nan if self._last is None or np.isnan(vector[0]) else float(self._last @ vector)

    @property
    def usual(self) -> float:
        """The usual likeness of the target; NaN before any."""
        return median(self._usual) if self._usual else math.nan

    @property
    def spread(self) -> float:
        """Standard deviation of the target's likeness; NaN before two looks."""
        return float(np.std(self._usual)) if len(self._usual) > 1 else math.nan

    @property
    def around(self) -> float:
        """The likeness that 95 % of what is beside the target stay below; NaN while too little is known."""
        known = len(self._around) >= MIN_AROUND
        return float(np.quantile(np.fromiter(self._around, float), AROUND_SHARE)) if known else math.nan

    def is_due(self, stamp_ns: int) -> bool:
        """Whether it is time to look at the target and beside it."""
        return self._asked_ns is None or not 0 <= stamp_ns - self._asked_ns < LOOK_NS

    def look(self, vector: Vector, stamp_ns: int, is_sure: bool) -> None:
        """Add what a followed box shows. ``is_sure``: it is followed without doubt, and no other object is
        there."""
        self._asked_ns = stamp_ns
        value = self.likeness(vector)
        if math.isnan(value):
            return
        self.likeness_now, self.continuity_now, self._last = value, self.continuity(vector), vector
        if not is_sure:
            self._waiting = None
            return
        self._usual.append(value)
        if self._waiting is not None:
            waited_ns = stamp_ns - self._waiting[0]
            if waited_ns >= LEARN_NS:
                self._keep(self._waiting[1])
            if not 0 <= waited_ns < LEARN_NS:
                self._waiting = None
        if self._waiting is None and value < SAME:
            self._waiting = stamp_ns, vector

    def look_beside(self, vectors: Vector) -> None:
        """Add what boxes beside the target show, float32 [n, D]."""
        values = (self.likeness(vector) for vector in vectors)
        self._around.extend(value for value in values if not math.isnan(value))

    def miss(self) -> None:
        """The target is not seen: the next look is the first at what is seen then."""
        self._waiting, self._last = None, None
        self.likeness_now = self.continuity_now = math.nan

    def _keep(self, vector: Vector) -> None:
        """Keep a vector; of too many the one goes that is most like another one, but never the first."""
        self._kept.append(vector)
        if len(self._kept) > MAX_KEPT:
            alike = np.stack(self._kept) @ np.stack(self._kept).T
            np.fill_diagonal(alike, -1.0)
            del self._kept[1 + int(np.argmax(alike[1:].max(axis=1)))]
