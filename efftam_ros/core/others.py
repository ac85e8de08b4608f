"""Whose object a candidate is, where there are several targets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from efftam_ros.core.errors import InputError
from efftam_ros.core.gallery import Gallery, Looks
from efftam_ros.core.geometry import Box, iou
from efftam_ros.core.types import Candidates

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
    """Another target of the same image. ``box``: seen or predicted, px."""

    target_id: int
    box: Box
    gallery: Gallery


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
        self, candidates: Candidates, looks: Looks, expected: Box | None
    ) -> tuple[Candidates, int | None]:
        """The candidates, those of them empty that are another target's, and the last such target's id.

        ``looks``: of this image, beside what the target looks like; ``expected``: its predicted box, None
        where it is lost.
        """
        holder = None
        for rival in self.rivals:
            for index, box in candidates.visible:
                overlap = iou(box, rival.box)
                if overlap < CONTESTED_IOU:
                    continue
                vector = looks.vector(box)
                mine = looks.likeness(box)
                theirs = math.nan if vector is None else rival.gallery.likeness(vector)
                evidence = theirs - mine if math.isfinite(theirs - mine) else 0.0
                # Of a lost target, which is expected nowhere, the likeness alone decides: it takes back what
                # another one has taken from it.
                had = TIE if expected is None else overlap - iou(box, expected) - TIE
                if evidence + had > 0.0:
                    boxes = candidates.boxes.copy()
                    boxes[index] = math.nan
                    candidates, holder = replace(candidates, boxes=boxes), rival.target_id
        return candidates, holder


ALONE = Others()
