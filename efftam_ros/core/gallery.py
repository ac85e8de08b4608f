"""Re-identification: decides whether a detection is the selected target, and which target owns it.

A network that distinguishes individuals describes crops as vectors of length 1 (`Describe`); the cosine of
two is high where both show one individual. A `Gallery` holds the vectors of a target, knows how alike it
usually is to them, and judges what is followed and what comes back. It learns a look once none of those after
it is in doubt: what takes the target's place must not become what the target looks like.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box, iou
from efftam_ros.core.reasons import ReasonCode
from efftam_ros.core.types import Candidates, Image

Vector = NDArray[np.float32]
Describe = Callable[[Image, Sequence[Box]], Vector]
"""Describes boxes (image px) of an image as vectors float32 [n, D]; NaN where nothing is known."""

ASKED_NS = 200_000_000
"""Time between two looks at a followed target, ns. In doubt each image is looked at."""
LEAST = 0.53
"""Likeness below which what is followed is in doubt. Of boxes recorded on the choosing half, 0.1 % of the
right ones and 30 % of the wrong ones lie below; the network was trained for one scale on all footage."""
SURE = 0.65
"""Likeness from which a look is usual, and learnt."""
SAME = 0.85
"""Likeness from which a look adds nothing."""
MOST = 6
"""Kept looks, the selected one among them: two or three sides of a target, in two lights."""
DOUBT_NS = 800_000_000
"""Time for which each look must be unlike the target, ns: a passer-by hides it for half a second."""
APART_IOU = 0.1
"""IoU of two boxes of an image below which they show different objects."""
USUAL_DROP = 0.1
"""By how much a target that returns is mostly less like its kept looks than it usually is, at most; and most
that a likeness counts for what may be it. Of 160 recorded misses, the target is the first thing accepted in
91 and something else in 2; with 0.05 in 79 and 0, with 0.15 in 91 and 7."""
UNKNOWN_USUAL = 0.45
"""Likeness that takes the place of the usual one, less the drop, where that is not known: 95 % of what is
beside a target is less like it."""


@dataclass(frozen=True, eq=False)
class Looks:
    """What boxes of one image show, each described once, beside what a target looks like.

    Without ``image`` or ``describe`` nothing is known.
    """

    gallery: Gallery
    image: Image | None = None
    describe: Describe | None = None
    _vectors: dict[Box, Vector] = field(default_factory=dict)
    _likenesses: dict[Box, float] = field(default_factory=dict)

    def vector(self, box: Box) -> Vector | None:
        """Return the vector of what a box shows; None where it is not known."""
        if self.describe is None or self.image is None:
            return None
        found = self._vectors.get(box)
        if found is None:
            found = self._vectors[box] = self.describe(self.image, [box])[0]
        return found

    def likeness(self, box: Box) -> float:
        """To the target, -1..1; NaN where it is not known."""
        found = self._likenesses.get(box)
        if found is None:
            vector = self.vector(box)
            found = math.nan if vector is None else self.gallery.likeness(vector)
            self._likenesses[box] = found
        return found

    def deficit(self, box: Box) -> float:
        """Return by how much it is less like the target than usual, at least 0; 0 where that is not known."""
        missing = self.gallery.usual - self.likeness(box)
        return max(0.0, missing) if math.isfinite(missing) else 0.0

    def rival(self, box: Box) -> float:
        """Return the highest likeness of another object among the boxes of this image that were described so
        far; NaN where there is none."""
        others = (one for one in self._vectors if iou(one, box) < APART_IOU)
        known = [value for one in others if not math.isnan(value := self.likeness(one))]
        return max(known, default=math.nan)

    def lead(self, box: Box) -> float:
        """Return by how much a box is more like the target than what may be taken for it.

        At most `USUAL_DROP`; 0 where that is not known.

        What may be taken for it is the best other object of this image, and something that is as like as the
        target usually is, less `USUAL_DROP`. The scale is thereby that of the scene and of the target: a
        likeness of 0.57 is much for a bird alone in the sky, and nothing among people who dress alike.
        """
        usual = self.gallery.usual
        against = [UNKNOWN_USUAL if math.isnan(usual) else usual - USUAL_DROP, self.rival(box)]
        lead = self.likeness(box) - max(value for value in against if not math.isnan(value))
        return 0.0 if math.isnan(lead) else min(lead, USUAL_DROP)


class Gallery:
    """What is known of a target's looks."""

    def __init__(self) -> None:
        self._kept: list[Vector] = []
        self._usual: deque[float] = deque(maxlen=5 * MOST)
        self._asked_ns: int | None = None
        self.is_doubted = False
        """Whether the last look was unlike the target."""
        self.is_other = False
        """Whether what is followed is another individual."""
        self._doubted_ns = self._doubts = 0  # since when each look was unlike the target, and how many
        self._waiting: tuple[int, Vector] | None = None  # stamp, and a look to be kept if no doubt follows
        self._unsettled = 0  # looks that may yet be kept though they are unlike the prompt
        self.likeness_now = math.nan
        """Of the last look; NaN before any."""
        self.deficit_now = math.nan
        """`deficit` of the last look; NaN before the selection is described."""

    def add_prompt(self, vector: Vector, stamp_ns: int) -> None:
        """Add the crop that was selected, or that a refinement showed. Until a look is like it the first ones
        count as much: the box may cover only part of the target, or an occluder."""
        if not np.isnan(vector[0]):
            self._kept.insert(0, vector)
            del self._kept[MOST:]
            self._asked_ns, self._unsettled, self.deficit_now = stamp_ns, MOST // 2, 0.0
            self.miss()

    def likeness(self, vector: Vector) -> float:
        """Return the best cosine with the kept vectors, -1..1; NaN where there is none."""
        if not self._kept or np.isnan(vector[0]):
            return math.nan
        return float(np.max(np.stack(self._kept) @ vector))

    @property
    def usual(self) -> float:
        """The usual likeness of the target; NaN before any."""
        return median(self._usual) if self._usual else math.nan

    def deficit(self, likeness: float) -> float:
        """Return by how much a likeness is below the usual one, at least 0; NaN for NaN. `SURE` takes the
        place of the usual one where that is not known."""
        deficit = (SURE if math.isnan(self.usual) else self.usual) - likeness
        return 0.0 if deficit < 0.0 else deficit

    def is_due(self, stamp_ns: int) -> bool:
        """Return whether the target is to be looked at in the image of this stamp."""
        last = self._asked_ns
        return last is None or self.is_doubted or not 0 <= stamp_ns - last < ASKED_NS

    def look(self, vector: Vector, stamp_ns: int, learns: bool) -> None:
        """Add what a followed box shows. ``learns``: the target is seen alone and clearly there."""
        self._asked_ns = stamp_ns
        value = self.likeness(vector)
        if not math.isnan(value):
            self.likeness_now, self.deficit_now = value, self.deficit(value)
            self._judge(value, vector, stamp_ns, learns)
        # Of a video of few images a second, two looks would do.
        lasts = self._doubts > MOST // 2 and stamp_ns - self._doubted_ns >= DOUBT_NS
        self.is_other = self.is_doubted and lasts

    def _judge(self, value: float, vector: Vector, stamp_ns: int, learns: bool) -> None:
        """Doubt a look of this likeness, or learn it."""
        if value < LEAST and self._unsettled:
            if learns:
                self._unsettled -= 1
                self._keep(vector)
            return
        if value < LEAST:
            if not self.is_doubted or self._doubted_ns > stamp_ns:
                self._doubted_ns, self._doubts = stamp_ns, 0
            self._doubts += 1
            self.is_doubted, self._waiting = True, None
            return
        self.is_doubted, self._unsettled = False, 0
        if self._waiting is not None:
            waited_ns = stamp_ns - self._waiting[0]
            if waited_ns >= DOUBT_NS:
                self._keep(self._waiting[1])
            if not 0 <= waited_ns < DOUBT_NS:
                self._waiting = None
        if value < SURE:
            return
        self._usual.append(value)
        if learns and value < SAME and self._waiting is None:
            self._waiting = stamp_ns, vector

    def miss(self) -> None:
        """Note that the target is not seen: the next look is the first at what is seen then."""
        self.is_doubted = self.is_other = False
        self._waiting, self.likeness_now = None, math.nan

    def _keep(self, vector: Vector) -> None:
        """Keep a vector; of too many the one goes that is most like another one, but never the first."""
        self._kept.append(vector)
        if len(self._kept) > MOST:
            alike = np.stack(self._kept) @ np.stack(self._kept).T
            np.fill_diagonal(alike, -1.0)
            del self._kept[1 + int(np.argmax(alike[1:].max(axis=1)))]


SAME_OBJECT_IOU = 0.5
"""IoU of a selection with another target's box from which both mean one object: the usual limit for boxes of
one object, reached by a drawn box that is 1.4 times too large along both sides."""
CONTESTED_IOU = 0.3
"""From this IoU of a candidate with another target's box on, the owner of the candidate is decided."""
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
    """What one target's tracker knows of the others. ``boxes``: of the rivals."""

    rivals: Sequence[Rival] = ()
    boxes: Sequence[Box] = ()

    def require_free(self, drawn: Box | None, candidates: Candidates) -> None:
        """Raises InputError when what was selected is another target's object."""
        seen = max(candidates.visible, key=lambda found: candidates.ious[found[0]], default=(0, drawn))[1]
        for rival in self.rivals:
            overlap = max(0.0 if box is None else iou(box, rival.box) for box in (drawn, seen))
            if overlap > SAME_OBJECT_IOU:
                taken = ReasonCode.TARGET_TAKEN
                raise InputError(taken.reason(target=rival.target_id, overlap=overlap, limit=SAME_OBJECT_IOU))

    def withheld(
        self, candidates: Candidates, looks: Looks, expected: Box | None
    ) -> tuple[Candidates, int | None]:
        """Return the candidates, those of them empty that are another target's, and the last such target's
        id.

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
