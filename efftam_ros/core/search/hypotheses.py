"""Places where the lost target may have been seen: each is followed over several looks until one is sure.

A look is a candidate that a window showed. What it is worth is a logarithm of odds; looks at one place tell
much the same again, so each counts less than the one before.
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
INNER_SHARE = 0.8  # of a window: what lies in it should have been seen
MISS_WORTH = -1.5  # of a look that does not show what it should
REPEATED = 0.75  # what a further look is worth in units of the one before: it tells much the same
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
    """A thing that may be the target. ``worths`` of its looks, oldest first; ``prior``: what the belief says."""

    motion: MotionFilter
    worths: list[float]
    prior: float = 0.0
    looks: int = 1
    seen_ns: int = 0
    quality: float = 0.0
    missed_ns: int = 0

    @property
    def box(self) -> Box:
        return self.motion.box

    @property
    def score(self) -> float:
        """Logarithm of the odds that this is the target."""
        count = len(self.worths)
        return self.prior + sum(self.worths) / count * (1 - REPEATED**count) / (1 - REPEATED)


@dataclass
class Hypotheses:
    """All of them, best first after `observe`."""

    prior: Callable[[Sequence[Box]], Sequence[float]]
    items: list[Hypothesis] = field(default_factory=list)

    def follow_camera(self, matrix: Matrix) -> None:
        for item in self.items:
            item.motion.follow_camera(matrix)

    def observe(self, stamp_ns: int, shown: Sequence[tuple[View, Look | None]]) -> None:
        """What the windows of one image showed: for each its best candidate, or None."""
        for known in self.items:
            known.motion.predict(stamp_ns)
        looked: set[int] = set()
        ranked = sorted((look for _, look in shown if look is not None), key=lambda look: -look.worth)
        fresh: list[Hypothesis] = []
        for look in ranked:
            item = self._match(look.box, self.items)
            if item is None:
                if self._match(look.box, fresh) is None:
                    motion = MotionFilter(stamp_ns, look.box)
                    fresh.append(Hypothesis(motion, [look.worth], seen_ns=stamp_ns, quality=look.quality))
            elif item.seen_ns == stamp_ns:  # several windows of one image tell one thing
                looked.add(id(item))
                item.worths[-1] = max(item.worths[-1], look.worth)
            else:
                looked.add(id(item))
                item.motion.update(look.box, look.quality)
                item.worths.append(look.worth)
                item.looks, item.seen_ns, item.quality = item.looks + 1, stamp_ns, look.quality
        for known in self.items:
            is_told = id(known) in looked or stamp_ns in (known.seen_ns, known.missed_ns)
            if not is_told and any(_shows(view, known.box) for view, _ in shown):
                known.worths.append(MISS_WORTH)
                known.missed_ns = stamp_ns
                known.motion.coast()
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
