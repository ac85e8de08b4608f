"""Possible positions of a lost target, each tracked over several looks until one is certain.

A look is a candidate found in a window; its worth is a log-odds value. Consecutive looks at one place are not
independent, and an occluder may be seen there before the target: evidence therefore decays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from efftam_ros.core.camera_motion import Matrix
from efftam_ros.core.geometry import Box, View, iou
from efftam_ros.core.motion import MotionFilter

MATCH_IOU = 0.15  # of a candidate with a hypothesis' predicted box
MATCH_SIZES = 0.8  # or distance of their centres, in sizes
INNER_SHARE = 0.8  # inner part of a window in which a hypothesis should be visible
MISS_WORTH = -1.5  # log-odds of a look in which a hypothesis that should be visible is not
# Factor on the evidence at each further look, because looks at one object are not independent. On looks
# recorded in 49 cases of the choosing half it accepts two wrong objects, 0.7 three, 1 four.
KEPT = 0.65
LEAST_EVIDENCE = -2.0  # lower bound, so that an earlier object at a place does not exclude the target there
FORGET_S = 1.5  # without a look
MOST = 12  # hypotheses at a time


@dataclass(frozen=True)
class Look:
    """A candidate in one window. ``worth``: logarithm of the odds that it is the target."""

    box: Box
    quality: float
    worth: float


@dataclass
class Hypothesis:
    """An object that may be the target. ``evidence``: log-odds of its looks; ``good_looks``: number of
    consecutive looks with positive log-odds; ``prior``: log-odds of its position by the belief; ``seen_ns``,
    ``missed_ns``: when it was last seen, and last not seen although it should have been."""

    motion: MotionFilter
    seen_ns: int
    missed_ns: int = 0
    evidence: float = 0.0
    good_looks: int = 0
    prior: float = 0.0
    _before: tuple[float, int] = (0.0, 0)  # evidence and good looks before this image
    _worth: float = 0.0  # of this image's look

    @property
    def box(self) -> Box:
        return self.motion.box

    @property
    def score(self) -> float:
        """Logarithm of the odds that this is the target."""
        return self.prior + self.evidence

    def look(self, stamp_ns: int, look: Look) -> None:
        """Add a look. Of several windows of one image only the best look counts."""
        if self.seen_ns != stamp_ns:
            self._before = self.evidence, self.good_looks
        elif look.worth <= self._worth:
            return
        evidence, good_looks = self._before
        is_good = look.worth > 0
        if is_good and good_looks == 0:
            self.motion = MotionFilter(stamp_ns, look.box)  # where something else was seen before
        elif self.seen_ns != stamp_ns:
            self.motion.update(look.box, look.quality)
        self._worth, self.seen_ns = look.worth, stamp_ns
        self.evidence = max(KEPT * evidence + look.worth, LEAST_EVIDENCE)
        self.good_looks = good_looks + 1 if is_good else 0

    def miss(self, stamp_ns: int) -> None:
        """Record that it should have been visible in this image and was not."""
        self.missed_ns = stamp_ns
        self.evidence = max(KEPT * self.evidence + MISS_WORTH, LEAST_EVIDENCE)
        self.good_looks = 0
        self.motion.coast()


@dataclass
class Hypotheses:
    """All hypotheses, best first after `observe`."""

    prior: Callable[[Sequence[Box]], Sequence[float]]
    items: list[Hypothesis] = field(default_factory=list)

    def follow_camera(self, matrix: Matrix) -> None:
        for item in self.items:
            item.motion.follow_camera(matrix)

    def observe(self, stamp_ns: int, shown: Sequence[tuple[View, Sequence[Look]]]) -> None:
        """Update by the candidates in the windows of one image."""
        for known in self.items:
            known.motion.predict(stamp_ns)
        ranked = sorted((look for _, looks in shown for look in looks), key=lambda look: -look.worth)
        fresh: list[Hypothesis] = []
        for look in ranked:
            item = self._match(look.box, self.items)
            if item is None and self._match(look.box, fresh) is None:
                item = Hypothesis(MotionFilter(stamp_ns, look.box), seen_ns=-1)
                fresh.append(item)
            if item is not None:
                item.look(stamp_ns, look)
        for known in self.items:
            is_told = stamp_ns in (known.seen_ns, known.missed_ns)
            if not is_told and any(_shows(view, known.box) for view, _ in shown):
                known.miss(stamp_ns)
        kept = [i for i in self.items + fresh if (stamp_ns - i.seen_ns) * 1e-9 <= FORGET_S]
        for known, prior in zip(kept, self.prior([i.box for i in kept]), strict=True):
            known.prior = prior
        self.items = sorted(kept, key=lambda i: -i.score)[:MOST]

    def _match(self, box: Box, items: Sequence[Hypothesis]) -> Hypothesis | None:
        best, least = None, math.inf
        for item in items:
            away = math.hypot(box.cx - item.box.cx, box.cy - item.box.cy) / max(item.box.size, box.size, 1.0)
            if (away < MATCH_SIZES or iou(box, item.box) > MATCH_IOU) and away < least:
                best, least = item, away
        return best


def _shows(view: View, box: Box) -> bool:
    """Whether a box lies well inside a window."""
    width, height = view.extent
    x, y = (box.cx - view.x) / width, (box.cy - view.y) / height
    margin = (1 - INNER_SHARE) / 2
    return margin <= x <= 1 - margin and margin <= y <= 1 - margin
