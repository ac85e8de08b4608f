"""The target's published box, given the box that was drawn and those of its candidates.

What is followed and remembered stays the middle mask, which is followed best. Its box lies where the logits
cross zero. What is thin (a rotor, skis, arms) or behind bars often has logits below zero, and what surrounds
a small target may have some above it, so that the box that a person draws has its edges elsewhere. A network
with a `BoxHead` also gives the edges at two other levels of the logits: `PlacedExtent` compares all with the
drawn box.

For a network without one: even the right mask of a target of a few pixels covers only its most salient part,
so that its box is too small; `DrawnExtent` enlarges it to fit the drawn box. Boxes around targets of
`MAX_PX` and more are often drawn roughly. The mask that the network finds in such a box is not as rough:
`PromptedExtent` continues that one's extent."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from statistics import median

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.geometry import Box, are_nested, iou
from efftam_ros.core.policies.constants import (
    BORDER,
    CONTINUED,
    EXTENT_FRAMES,
    LEVELS,
    MAX_OFFSET,
    MAX_PX,
    MAX_WAY,
    MIN_OFFSET,
    MOST,
    RELATED_FRAMES,
    SHARE,
)
from efftam_ros.core.types import BoxHead, Candidates, Motion

OUTWARD = np.array([-1.0, -1.0, 1.0, 1.0])

Edges = NDArray[np.float64]
"""Left, top, right, bottom."""


def size_overlap(a: Box, b: Box) -> float:
    """IoU of two boxes laid on one centre, 0..1; 0 for an empty one."""
    return iou(a, Box.from_centre(a.cx, a.cy, b.width, b.height))


def is_inside(box: Box, image_size: tuple[int, int]) -> bool:
    """Return whether a box is clear of the image's border."""
    margin = BORDER * max(image_size)
    left, top, right, bottom = box.edges()
    return min(left, top, image_size[0] - right, image_size[1] - bottom) > margin


class TargetExtent:
    """The target's published box, given the candidates' and the one that is followed: that one itself."""

    is_settled = True
    """Whether no more frames are compared."""

    def add(self, candidates: Candidates, index: int) -> None:
        """Compare the candidates of a confirmed frame; ``index`` is followed."""

    def shown(
        self,
        candidates: Candidates,
        index: int,
        followed: Box,
        estimated: Box,
        image_size: tuple[int, int],
    ) -> tuple[int, Box]:
        """Return the candidate whose mask is published, and the target's box.

        Candidate ``index``, which has the box ``followed``, is followed; the motion filter has the box
        ``estimated`` after this frame. ``image_size``: width, height px.
        """
        return index, followed

    def grown_motion(self, motion: Motion) -> Motion:
        """Return the target's motion, given that of the motion filter."""
        return motion


class DrawnExtent(TargetExtent):
    """Compares a small target's drawn box with the first boxes measured after it."""

    def __init__(self, drawn: Box) -> None:
        """``drawn``: px."""
        self._drawn = drawn
        self._widths: deque[float] = deque(maxlen=EXTENT_FRAMES)
        self._heights: deque[float] = deque(maxlen=EXTENT_FRAMES)
        self.is_settled = False
        self.factors = (1.0, 1.0)

    def add(self, candidates: Candidates, index: int) -> None:
        """See `TargetExtent`; only the first `EXTENT_FRAMES` are used."""
        if self.is_settled:
            return
        box = candidates.box(index)
        self._widths.append(box.width)
        self._heights.append(box.height)
        self.is_settled = len(self._widths) == EXTENT_FRAMES
        self.factors = (
            _factor(self._drawn.width / median(self._widths)),
            _factor(self._drawn.height / median(self._heights)),
        )

    def shown(
        self,
        candidates: Candidates,
        index: int,
        followed: Box,
        estimated: Box,
        image_size: tuple[int, int],
    ) -> tuple[int, Box]:
        return index, self.grown(followed)

    def grown(self, box: Box) -> Box:
        """Return the target's box, given the box of its mask; both have the same centre."""
        if self.factors == (1.0, 1.0):
            return box
        return Box.from_centre(box.cx, box.cy, self.factors[0] * box.width, self.factors[1] * box.height)

    def grown_motion(self, motion: Motion) -> Motion:
        """Box and size rate are larger than the mask's, the centre is the same."""
        if self.factors == (1.0, 1.0):
            return motion
        (across, down), (width_rate, height_rate) = self.factors, motion.size_rate
        rate = (across * width_rate, down * height_rate)
        return replace(motion, box=self.grown(motion.box), size_rate=rate)


class PromptedExtent(TargetExtent):
    """Publishes the candidate that best continues the prompted mask's extent."""

    def __init__(self, prompted: Box, is_entering: bool) -> None:
        """``prompted``: box of the prompted frame's mask, px; ``is_entering``: the target may be coming into
        the image and grow, so that no smaller candidate than the followed one is published."""
        self._prompted, self._is_entering = prompted, is_entering
        self._fits: list[NDArray[np.float64]] = []  # of each candidate, beyond that of the followed one
        self.is_settled = False
        self._relations: deque[tuple[float, float, float, float]] = deque(maxlen=RELATED_FRAMES)

    def add(self, candidates: Candidates, index: int) -> None:
        """See `TargetExtent`; the extent is compared in the first `EXTENT_FRAMES`."""
        if not self.is_settled and len(candidates) > 1:
            self._fits.append(self._excess(candidates, index))
            self.is_settled = len(self._fits) == EXTENT_FRAMES

    def _excess(self, candidates: Candidates, index: int) -> NDArray[np.float64]:
        boxes = [candidates.box(i) for i in range(len(candidates))]
        fits = np.array([size_overlap(box, self._prompted) for box in boxes])
        smaller = np.array([self._is_entering and box.area < boxes[index].area for box in boxes])
        return np.where(smaller, 0.0, fits) - fits[index]

    def shown(
        self,
        candidates: Candidates,
        index: int,
        followed: Box,
        estimated: Box,
        image_size: tuple[int, int],
    ) -> tuple[int, Box]:
        number = self._continuing(candidates, index, followed)
        if number == index:
            self._relations.clear()
            return index, followed
        box = candidates.box(number)
        # To the filter's box, which after the prompt has not reached the followed mask's extent yet.
        shift = (box.cx - estimated.cx) / estimated.width, (box.cy - estimated.cy) / estimated.height
        self._relations.append((box.width / estimated.width, box.height / estimated.height, *shift))
        return number, box

    def _continuing(self, candidates: Candidates, index: int, followed: Box) -> int:
        """Return the candidate that continues the prompted extent; ``index`` where none does so clearly
        better."""
        fits = [fit for fit in self._fits if len(fit) == len(candidates)]
        if not fits:
            return index
        mean = np.mean(fits, axis=0)
        best = int(np.argmax(mean))
        is_better = mean[best] > CONTINUED and are_nested(candidates.box(best), followed)
        return best if is_better else index

    def grown_motion(self, motion: Motion) -> Motion:
        if not self._relations:
            return motion
        across, down, right, below = (median(values) for values in zip(*self._relations, strict=True))
        box, rate = motion.box, motion.size_rate
        x, y = box.cx + right * box.width, box.cy + below * box.height
        grown = Box.from_centre(x, y, across * box.width, down * box.height)
        return replace(motion, box=grown, size_rate=(across * rate[0], down * rate[1]))


class EdgeCues:
    """Two cues of where one target's edges lie outwards of its mask's, in sizes of the mask."""

    def __init__(self, drawn: Edges, prompted: Edges) -> None:
        """``drawn``: the drawn box; ``prompted``: that of the prompted mask, NaN where it is empty; px of the
        image."""
        self._drawn_sides = sides(drawn)[:2]
        offset = (drawn - prompted) * OUTWARD / sides(prompted)
        self.offset: Edges = np.nan_to_num(np.clip(offset, MIN_OFFSET, MAX_OFFSET))
        """How far outwards of the prompted mask's edges the drawn box's are."""
        self._log_ratios: list[Edges] = []  # [levels, 2], of masks to the drawn box
        self.levels = (0.0, 0.0)
        """At which the compared masks are as wide, and as high, as the drawn box."""
        self.is_settled = False

    def compare(self, boxes: Edges) -> None:
        """Compare a followed mask's boxes at `LEVELS`, [3, 4] px; only the first `EXTENT_FRAMES` count."""
        if self.is_settled:
            return
        self._log_ratios.append(np.log(sides(boxes)[:, :2] / self._drawn_sides))
        across, down = np.median(self._log_ratios, axis=0).T
        self.levels = _level(across), _level(down)
        self.is_settled = len(self._log_ratios) == EXTENT_FRAMES

    def way(self, boxes: Edges, size: Edges) -> Edges:
        """Return how far outwards of a mask's edges they are at the target's own levels, [4].

        ``boxes``: of the mask at `LEVELS`, [3, 4] px; ``size``: its `sides`.
        """
        level = np.array(2 * self.levels)
        other = np.where(level < 0, boxes[0], boxes[2])
        way = np.abs(level) * (other - boxes[1]) * OUTWARD / size
        return np.clip(way, -MAX_WAY, MAX_WAY)


class PlacedExtent(TargetExtent):
    """Places the edges of a drawn target's box by both cues."""

    def __init__(self, head: BoxHead, drawn: Box, prompted: Box | None) -> None:
        """``drawn``: px; ``prompted``: box of the prompted frame's mask, px, None where it is empty."""
        self._head = head
        of_mask = [np.nan] * 4 if prompted is None else prompted.edges()
        self.cues = EdgeCues(np.array(drawn.edges()), np.array(of_mask))
        self._relations: deque[Edges] = deque(maxlen=RELATED_FRAMES)

    def add(self, candidates: Candidates, index: int) -> None:
        """See `TargetExtent`; only the first `EXTENT_FRAMES` are used."""
        assert candidates.levels is not None
        self.cues.compare(candidates.levels[index].astype(np.float64))
        self.is_settled = self.cues.is_settled

    def shown(
        self,
        candidates: Candidates,
        index: int,
        followed: Box,
        estimated: Box,
        image_size: tuple[int, int],
    ) -> tuple[int, Box]:
        assert candidates.levels is not None
        boxes = candidates.levels[index].astype(np.float64)
        edges, size = boxes[1], np.maximum([followed.width, followed.height] * 2, 1.0)
        way = self.cues.way(boxes, size)
        outward = self._head.level_share * way + self._head.prompt_share * self.cues.offset
        # The target ends where the image does; a mask's own edge may lie a little outside.
        placed = edges + size * outward * OUTWARD
        placed = np.clip(placed, np.minimum(edges, 0.0), np.maximum(edges, image_size + image_size))
        self._relations.append((placed - edges) / size)
        left, top, right, bottom = placed.tolist()
        return index, Box(left, top, right - left, bottom - top)

    def grown_motion(self, motion: Motion) -> Motion:
        """The motion's box is placed relative to the filter's as the last ones to the mask's."""
        if not self._relations:
            return motion
        left, top, right, bottom = np.median(self._relations, axis=0).tolist()
        box, rate = motion.box, motion.size_rate
        across, down = 1 + right - left, 1 + bottom - top
        x, y = box.x + left * box.width, box.y + top * box.height
        placed = Box(x, y, across * box.width, down * box.height)
        return replace(motion, box=placed, size_rate=(across * rate[0], down * rate[1]))


def make_extent(
    head: BoxHead | None, drawn: Box | None, prompted: Box | None, image_size: tuple[int, int]
) -> TargetExtent:
    """Return the extent of the published box.

    ``drawn``: the box that selected the target, px, None where it was not drawn; ``prompted``: box of the
    mask on that image, None where the network saw nothing; ``head``: of the network, None if it has none.
    """
    if drawn is None:
        return TargetExtent()
    if head is not None:
        return PlacedExtent(head, drawn, prompted)
    if drawn.size < MAX_PX:
        return DrawnExtent(drawn)
    if prompted is None:
        return TargetExtent()
    return PromptedExtent(prompted, not is_inside(drawn, image_size))


def sides(box: Edges) -> Edges:
    """Width and height, at least one px, twice: [..., 4]."""
    size = np.maximum(box[..., 2:] - box[..., :2], 1.0)
    return np.concatenate([size, size], axis=-1)


def _level(log_ratios: Edges) -> float:
    """The level at which a mask's side is the drawn box's, given those sides' log ratios at `LEVELS`."""
    falling = np.minimum.accumulate(log_ratios) - 1e-6 * np.arange(len(LEVELS))
    return float(np.interp(0.0, falling[::-1], LEVELS[::-1]))


def _factor(ratio: float) -> float:
    return min(max(ratio**SHARE, 1.0), MOST)
