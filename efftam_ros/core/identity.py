"""Likeness to the selected target: which templates of its appearance there are, and which of them count.

A pipeline keeps templates and computes the likeness of each candidate to them (`Candidates.likeness`). The
first is the prompted frame's and stays. The others are renewed in turn from confirmed frames, because a
target may turn; each counts only once it is old enough: everything is like itself a moment ago, also what has
just taken the target's place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box, iou
from efftam_ros.core.types import Candidates

RENEWAL_NS = 500_000_000
"""Time between renewals, and the age from which a renewed template counts."""


class Templates:
    """The templates of one target."""

    def __init__(self, count: int = 0, stamp_ns: int = 0) -> None:
        """``count``: how many the pipeline keeps; ``stamp_ns``: of the prompted frame."""
        self._taken: list[int | None] = [stamp_ns, *[None] * count][:count]

    def likeness(self, candidates: Candidates, index: int, stamp_ns: int, lane: int | None = None) -> float:
        """The best likeness of a candidate to the templates that count, -1..1; NaN where there is none.
        ``lane``: of these templates, where it is not that of the candidates."""
        likeness = candidates.likeness
        if lane is not None and candidates.by_lane is not None:
            likeness = candidates.by_lane[:, lane]
        if likeness is None or not self._taken:
            return math.nan
        values = likeness[index].tolist()
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


SAME_OBJECT_IOU = 0.5
"""IoU of a selection with another target's box from which both mean one object: the usual limit for boxes of
one object, reached by a drawn box that is 1.4 times too large along both sides."""
CONTESTED_IOU = 0.3
"""IoU of a candidate with another target's box from which it is asked whose it is."""
SHARED_IOU = 0.2
"""IoU of a target's box with another target's from which an image may show both in one mask."""
TIE = 0.1
"""Least difference of the evidence that decides; within it the object stays with the target that had it."""


@dataclass(frozen=True)
class Rival:
    """Another target of the same image. ``box``: seen or predicted, px; ``lane``: in `Candidates.by_lane`."""

    target_id: int
    box: Box
    lane: int
    templates: Templates


@dataclass(frozen=True)
class Others:
    """What one target's tracker knows of the others. ``search_windows``: its share of the windows that are
    searched in this image; None: all; ``boxes``: of the rivals."""

    rivals: Sequence[Rival] = ()
    search_windows: int | None = None
    boxes: Sequence[Box] = ()

    def require_free(self, drawn: Box | None, candidates: Candidates) -> None:
        """Raises InputError when what was selected is another target's object."""
        seen = max(candidates.visible, key=lambda found: candidates.ious[found[0]], default=(0, drawn))[1]
        for rival in self.rivals:
            overlap = max(0.0 if box is None else iou(box, rival.box) for box in (drawn, seen))
            if overlap > SAME_OBJECT_IOU:
                raise InputError(
                    f"this object is target {rival.target_id} already (overlap {overlap:.2f}, at most"
                    f" {SAME_OBJECT_IOU}); select another one, or remove target {rival.target_id} first"
                )

    def is_shared(self, box: Box | None) -> bool:
        """Whether this box may hold another target too."""
        return box is not None and any(iou(box, rival.box) > SHARED_IOU for rival in self.rivals)

    def withheld(
        self, candidates: Candidates, own: Templates, expected: Box | None, stamp_ns: int
    ) -> tuple[Candidates, int | None]:
        """The candidates, those of them empty that are another target's, and the last such target's id.

        ``own``: the target's templates; ``expected``: its predicted box, None where it is lost.
        """
        holder = None
        for rival in self.rivals:
            for index, box in candidates.visible:
                overlap = iou(box, rival.box)
                if overlap < CONTESTED_IOU:
                    continue
                mine = own.likeness(candidates, index, stamp_ns)
                theirs = rival.templates.likeness(candidates, index, stamp_ns, rival.lane)
                known = math.isfinite(mine) and math.isfinite(theirs)
                evidence = theirs - mine if known else 0.0
                # Of a lost target, which is expected nowhere, the likeness alone decides: it takes back what
                # another one has taken from it.
                had = TIE if expected is None else overlap - iou(box, expected) - TIE
                if evidence + had > 0.0:
                    boxes = candidates.boxes.copy()
                    boxes[index] = math.nan
                    candidates, holder = replace(candidates, boxes=boxes), rival.target_id
        return candidates, holder


ALONE = Others()
