"""Re-identification: decides whether a detection is the selected target, and which target owns it.

The identity network describes a crop by a vector of length 1 (`Describe`), called a look. The cosine of two
looks, the likeness, is high if both show the same individual. A `Gallery` keeps the looks of one target, and
how alike to them the target usually is. By these it judges the object that is followed, and objects that may
be the returning target. A new look is learnt only if no look of the next `DOUBT_NS` is doubted: otherwise an
object that takes the target's place would become what the target looks like.
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
"""Returns the vectors float32 [n, D], of length 1, of n boxes (px) of an image; NaN for a box that can't be
described."""

ASKED_NS = 200_000_000
"""Interval, ns, at which the look of a followed target is computed. After a doubted look it is computed in
every image."""
LEAST = 0.53
"""Likeness below which it is doubted that the followed object is the target. In the half of the recorded
footage on which values were chosen, 0.1 % of the right boxes and 30 % of the wrong ones lie below it."""
SURE = 0.65
"""Least likeness of a look that counts as usual for the target, and that may be learnt."""
SAME = 0.85
"""Likeness from which a look is so similar to a kept one that it need not be learnt."""
MOST = 6
"""Largest number of kept looks, including that of the selection. This is enough for two or three sides of a
target, in two lights."""
DOUBT_NS = 800_000_000
"""Time, ns, for which each look must be unlike the target before the followed object counts as another one.
It is longer than the half second for which a passer-by hides a target."""
APART_IOU = 0.1
"""Two boxes of one image show different objects if their IoU is below this."""
USUAL_DROP = 0.1
"""When a target returns, its likeness is in most cases at most this much below its usual likeness. The value
also limits how much likeness counts for a candidate (`Looks.lead`). Of 160 recorded misses, the first
accepted object is the target in 91 and another object in 2. With 0.05 these counts are 79 and 0, with 0.15
they are 91 and 7."""
UNKNOWN_USUAL = 0.45
"""Replaces the target's usual likeness minus `USUAL_DROP` while the usual likeness is not known. Of the other
objects near a target, 95 % have a lower likeness to the target."""


@dataclass(frozen=True, eq=False)
class Looks:
    """The looks of boxes of one image, compared with one target's gallery. Each box is described only once.

    Attributes:
        gallery: The target's kept looks.
        image: The image; None: no look and no likeness is known.
        describe: The identity network; None: no look and no likeness is known.
    """

    gallery: Gallery
    image: Image | None = None
    describe: Describe | None = None
    _vectors: dict[Box, Vector] = field(default_factory=dict)
    _likenesses: dict[Box, float] = field(default_factory=dict)

    def vector(self, box: Box) -> Vector | None:
        """Return the look of a box, px: float32 [D], of length 1, or NaN where the box can't be described.
        None without an identity network."""
        if self.describe is None or self.image is None:
            return None
        found = self._vectors.get(box)
        if found is None:
            found = self._vectors[box] = self.describe(self.image, [box])[0]
        return found

    def likeness(self, box: Box) -> float:
        """Return the likeness of a box to the target, -1..1; NaN where it is not known."""
        found = self._likenesses.get(box)
        if found is None:
            vector = self.vector(box)
            found = math.nan if vector is None else self.gallery.likeness(vector)
            self._likenesses[box] = found
        return found

    def rival(self, box: Box) -> float:
        """Return the highest likeness to the target among other objects than the one in ``box``: the boxes of
        this image that were described so far and do not overlap it. NaN where there is none."""
        others = (one for one in self._vectors if iou(one, box) < APART_IOU)
        known = [value for one in others if not math.isnan(value := self.likeness(one))]
        return max(known, default=math.nan)

    def lead(self, box: Box) -> float:
        """Return by how much a box is more like the target than objects that may be confused with it. The
        result is at most `USUAL_DROP`, and 0 where the likeness is not known.

        The box is compared with the most similar other object of this image, and with the likeness that the
        target usually has, minus `USUAL_DROP`; the higher of the two counts. So the result depends on the
        scene and the target: a likeness of 0.57 is high for a single bird in the sky, and not unusual among
        people in the same clothes.
        """
        usual = self.gallery.usual
        against = [UNKNOWN_USUAL if math.isnan(usual) else usual - USUAL_DROP, self.rival(box)]
        lead = self.likeness(box) - max(value for value in against if not math.isnan(value))
        return 0.0 if math.isnan(lead) else min(lead, USUAL_DROP)


class Gallery:
    """The kept looks of one target, and whether its latest looks were doubted."""

    def __init__(self) -> None:
        self._kept: list[Vector] = []
        self._usual: deque[float] = deque(maxlen=5 * MOST)
        self._asked_ns: int | None = None
        self.is_doubted = False
        """Whether the last look at the followed object was unlike the target."""
        self.is_other = False
        """Whether the followed object is another individual: its looks were unlike the target for long
        enough."""
        # While looks are doubted: the stamp of the first doubted look, ns, and the number of doubted looks.
        self._doubted_ns = self._doubts = 0
        # A look that will be learnt unless a look of the next `DOUBT_NS` is doubted, with its stamp, ns.
        self._waiting: tuple[int, Vector] | None = None
        # How many of the next looks may be learnt although they are unlike the look of the selection.
        self._unsettled = 0
        self.likeness_now = math.nan
        """Likeness of the last look; NaN before the first look, and after a miss."""
        self.deficit_now = math.nan
        """By how much the likeness of the last look was below the usual one. NaN before the look of the
        selection is added, and 0 right after that."""

    def add_prompt(self, vector: Vector, stamp_ns: int) -> None:
        """Add the look of the selected box.

        The box may have covered only a part of the target, or an occluder. Therefore the first looks after
        the selection are learnt even if they are unlike the look of the selected box, until a look is like a
        kept one.
        """
        if not np.isnan(vector[0]):
            self._kept.insert(0, vector)
            del self._kept[MOST:]
            self._asked_ns, self._unsettled, self.deficit_now = stamp_ns, MOST // 2, 0.0
            self.miss()

    def likeness(self, vector: Vector) -> float:
        """Return the highest cosine of a look with the kept ones, -1..1; NaN where no look is kept, or this
        one is NaN."""
        if not self._kept or np.isnan(vector[0]):
            return math.nan
        return float(np.max(np.stack(self._kept) @ vector))

    @property
    def usual(self) -> float:
        """The likeness that the target usually has to its kept looks; NaN before the first usual look."""
        return median(self._usual) if self._usual else math.nan

    def deficit(self, likeness: float) -> float:
        """Return by how much a likeness is below the target's usual likeness: at least 0, and NaN for NaN.
        While the usual likeness is not known, `SURE` takes its place."""
        deficit = (SURE if math.isnan(self.usual) else self.usual) - likeness
        return 0.0 if deficit < 0.0 else deficit

    def is_due(self, stamp_ns: int) -> bool:
        """Return whether the identity network should describe the target in the image of this stamp, ns."""
        last = self._asked_ns
        return last is None or self.is_doubted or not 0 <= stamp_ns - last < ASKED_NS

    def look(self, vector: Vector, stamp_ns: int, learns: bool) -> None:
        """Compare a vector of the followed box with the kept looks, and store its likeness.

        ``learns``: whether the vector may become a kept look, because the target is seen clearly and alone.
        """
        self._asked_ns = stamp_ns
        value = self.likeness(vector)
        if not math.isnan(value):
            self.likeness_now, self.deficit_now = value, self.deficit(value)
            self._judge(value, vector, stamp_ns, learns)
        # The number of doubted looks is checked too, because of videos with few images per second. There, two
        # doubted looks alone would last for `DOUBT_NS`.
        lasts = self._doubts > MOST // 2 and stamp_ns - self._doubted_ns >= DOUBT_NS
        self.is_other = self.is_doubted and lasts

    def _judge(self, value: float, vector: Vector, stamp_ns: int, learns: bool) -> None:
        """Decide, by the likeness ``value`` of a look, whether the look is doubted, and whether it is
        learnt."""
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
        """Note that the target is not seen. Doubts and the last likeness are discarded, because the next look
        may show another object."""
        self.is_doubted = self.is_other = False
        self._waiting, self.likeness_now = None, math.nan

    def _keep(self, vector: Vector) -> None:
        """Keep a look. If too many are kept, the one that is most similar to another one is dropped, but
        never the first one, which is that of the selection."""
        self._kept.append(vector)
        if len(self._kept) > MOST:
            alike = np.stack(self._kept) @ np.stack(self._kept).T
            np.fill_diagonal(alike, -1.0)
            del self._kept[1 + int(np.argmax(alike[1:].max(axis=1)))]


SAME_OBJECT_IOU = 0.5
"""A selection with a higher IoU than this with another target's box marks that target's object. It is the
usual limit for two boxes of one object. A drawn box that is 1.4 times too large along both sides reaches
it."""
CONTESTED_IOU = 0.3
"""If the IoU of a candidate with another target's box is at least this, both targets may own the
candidate."""
SHARED_IOU = 0.2
"""If the IoU of two targets' boxes exceeds this, one mask may cover both targets."""
TIE = 0.1
"""An object changes from one target to another only if the evidence for the two targets differs by more than
this."""


@dataclass(frozen=True)
class Rival:
    """Another target in the same image. ``box``: where it was seen or is predicted, px."""

    target_id: int
    box: Box
    gallery: Gallery


@dataclass(frozen=True)
class Others:
    """All other targets in the image, for the tracker of one target. ``boxes``: the boxes of ``rivals``."""

    rivals: Sequence[Rival] = ()
    boxes: Sequence[Box] = ()

    def require_free(self, drawn: Box | None, candidates: Candidates) -> None:
        """Raise InputError if the selected object is another target already.

        ``drawn``: the drawn box, px, None where points were given; ``candidates``: the network's answer to
        the prompt.
        """
        seen = max(candidates.visible, key=lambda found: candidates.ious[found[0]], default=(0, drawn))[1]
        for rival in self.rivals:
            overlap = max(0.0 if box is None else iou(box, rival.box) for box in (drawn, seen))
            if overlap > SAME_OBJECT_IOU:
                taken = ReasonCode.TARGET_TAKEN
                raise InputError(taken.reason(target=rival.target_id, overlap=overlap, limit=SAME_OBJECT_IOU))

    def withheld(
        self, candidates: Candidates, looks: Looks, expected: Box | None
    ) -> tuple[Candidates, int | None]:
        """Make the candidates empty that show another target's object.

        Args:
            candidates: The network's candidates for this target.
            looks: The looks of boxes of this image, compared with this target.
            expected: This target's predicted box, px; None where it is lost.

        Returns:
            All candidates, some of them made empty; and the id of a target that owns one of the emptied
            candidates, None if no candidate was made empty.
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
                # A lost target is expected nowhere, so its likeness alone decides. It can take back an object
                # that another target has taken over.
                had = TIE if expected is None else overlap - iou(box, expected) - TIE
                if evidence + had > 0.0:
                    boxes = candidates.boxes.copy()
                    boxes[index] = math.nan
                    candidates, holder = replace(candidates, boxes=boxes), rival.target_id
        return candidates, holder


ALONE = Others()
