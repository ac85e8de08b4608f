"""Computes the target's published box from the drawn box and the boxes of the candidates.

The tracker follows and remembers one mask, mostly the middle one of three, because it is followed best. The
edges of this mask's box are where the logits cross zero. A person may draw the edges elsewhere: thin parts of
a target (a rotor, skis, arms), and parts behind bars, often have logits below zero, and the surroundings of a
small target may have logits above zero.

`PlacedExtent` is for a network with a `BoxHead`, which also gives the edges at two other levels of the
logits. It compares the edges at all levels with the drawn box.

The other two classes are for networks without a `BoxHead`. `DrawnExtent` is for targets of a few pixels. Even
a right mask covers only the most salient part of such a target, so the box is enlarged to fit the drawn box.
`PromptedExtent` is for targets of `MAX_PX` and more, around which boxes are often drawn roughly. It publishes
the candidate that continues the extent of the mask that the network found in the drawn box."""

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
"""Sign of a shift that moves the left, top, right or bottom edge of a box outwards."""

Edges = NDArray[np.float64]
"""Left, top, right and bottom edge in the last axis."""


def size_overlap(a: Box, b: Box) -> float:
    """Return the IoU, 0..1, that two boxes would have if they had the same centre; 0 if one is empty."""
    return iou(a, Box.from_centre(a.cx, a.cy, b.width, b.height))


def is_inside(box: Box, image_size: tuple[int, int]) -> bool:
    """Return whether a box, px, keeps a distance from the image's border. ``image_size``: width and height,
    px."""
    margin = BORDER * max(image_size)
    left, top, right, bottom = box.edges()
    return min(left, top, image_size[0] - right, image_size[1] - bottom) > margin


class TargetExtent:
    """Publishes the box of the followed candidate as it is; the base class of those that compute another
    box."""

    is_settled = True
    """Whether enough frames were compared with the drawn box, so that `add` need not be called any more."""

    def add(self, candidates: Candidates, index: int) -> None:
        """Compare the candidates of a confirmed frame with the drawn box. ``index``: the followed
        candidate."""

    def shown(
        self,
        candidates: Candidates,
        index: int,
        followed: Box,
        estimated: Box,
        image_size: tuple[int, int],
    ) -> tuple[int, Box]:
        """Return the index of the candidate whose mask is published, and the box that is published, px.

        Args:
            candidates: The candidates of the frame.
            index: The followed candidate.
            followed: Its box, px.
            estimated: The motion filter's box after this frame, px.
            image_size: Width and height, px.
        """
        return index, followed

    def grown_motion(self, motion: Motion) -> Motion:
        """Return the motion that is published. ``motion``: motion by the motion filter, which follows the box
        of the mask."""
        return motion


class DrawnExtent(TargetExtent):
    """Enlarges the box of a small target by the ratio of the drawn box to the first measured boxes."""

    def __init__(self, drawn: Box) -> None:
        """``drawn``: the drawn box, px."""
        self._drawn = drawn
        self._widths: deque[float] = deque(maxlen=EXTENT_FRAMES)
        self._heights: deque[float] = deque(maxlen=EXTENT_FRAMES)
        self.is_settled = False
        self.factors = (1.0, 1.0)

    def add(self, candidates: Candidates, index: int) -> None:
        """Compare the followed candidate's box with the drawn one. Only the first `EXTENT_FRAMES` are
        used."""
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
        """Return the published box, px, for the box of a mask. Both have the same centre."""
        if self.factors == (1.0, 1.0):
            return box
        return Box.from_centre(box.cx, box.cy, self.factors[0] * box.width, self.factors[1] * box.height)

    def grown_motion(self, motion: Motion) -> Motion:
        """Return the motion with its box and its rates of the size enlarged. The centre stays the same."""
        if self.factors == (1.0, 1.0):
            return motion
        (across, down), (width_rate, height_rate) = self.factors, motion.size_rate
        rate = (across * width_rate, down * height_rate)
        return replace(motion, box=self.grown(motion.box), size_rate=rate)


class PromptedExtent(TargetExtent):
    """Publishes the candidate that best continues the extent of the mask on the prompted frame."""

    def __init__(self, prompted: Box, is_entering: bool) -> None:
        """Start on the prompted frame.

        Args:
            prompted: Box of the mask on the prompted frame, px.
            is_entering: Whether the target may be coming into the image, and so grow. A candidate that is
                smaller than the followed one is then not published.
        """
        self._prompted, self._is_entering = prompted, is_entering
        # For each compared frame: by how much each candidate fits the prompted mask better than the followed
        # candidate does.
        self._fits: list[NDArray[np.float64]] = []
        self.is_settled = False
        # For the newest frames: size and place of the published box, relative to the filter's box.
        self._relations: deque[tuple[float, float, float, float]] = deque(maxlen=RELATED_FRAMES)

    def add(self, candidates: Candidates, index: int) -> None:
        """Compare the candidates with the prompted mask. Only the first `EXTENT_FRAMES` are used."""
        if not self.is_settled and len(candidates) > 1:
            self._fits.append(self._excess(candidates, index))
            self.is_settled = len(self._fits) == EXTENT_FRAMES

    def _excess(self, candidates: Candidates, index: int) -> NDArray[np.float64]:
        """Return by how much each candidate fits the prompted mask better than candidate ``index``, [K]."""
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
        # The relation is to the filter's box, not to the followed mask's: the filter takes some frames after
        # the prompt until it has reached the extent of the followed mask.
        shift = (box.cx - estimated.cx) / estimated.width, (box.cy - estimated.cy) / estimated.height
        self._relations.append((box.width / estimated.width, box.height / estimated.height, *shift))
        return number, box

    def _continuing(self, candidates: Candidates, index: int, followed: Box) -> int:
        """Return the index of the candidate that covers as much of the object as the selection did; ``index``
        itself if no other candidate fits clearly better."""
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
    """Two cues of how far outside a mask's edges the target's edges lie, as shares of the mask's width or
    height."""

    def __init__(self, drawn: Edges, prompted: Edges) -> None:
        """``drawn``: edges of the drawn box, px; ``prompted``: edges of the mask on the prompted frame, px;
        NaN if that mask is empty."""
        self._drawn_sides = sides(drawn)[:2]
        offset = (drawn - prompted) * OUTWARD / sides(prompted)
        self.offset: Edges = np.nan_to_num(np.clip(offset, MIN_OFFSET, MAX_OFFSET))
        """The first cue: how far outside the prompted mask's edges those of the drawn box are, [4]."""
        # For each compared frame, [levels, 2]: log ratios of the mask's width and height to the drawn box's.
        self._log_ratios: list[Edges] = []
        self.levels = (0.0, 0.0)
        """For the second cue: the levels of the logits at which the compared masks are as wide, and as high,
        as the drawn box."""
        self.is_settled = False

    def compare(self, boxes: Edges) -> None:
        """Compare a followed mask with the drawn box. ``boxes``: edges of the mask at `LEVELS`, [3, 4] px.
        Only the first `EXTENT_FRAMES` count."""
        if self.is_settled:
            return
        self._log_ratios.append(np.log(sides(boxes)[:, :2] / self._drawn_sides))
        across, down = np.median(self._log_ratios, axis=0).T
        self.levels = _level(across), _level(down)
        self.is_settled = len(self._log_ratios) == EXTENT_FRAMES

    def way(self, boxes: Edges, size: Edges) -> Edges:
        """Return the second cue, [4]: how far outside a mask's edges its edges at the levels `levels` lie.

        ``boxes``: edges of the mask at `LEVELS`, [3, 4] px; ``size``: width, height, width, height of the
        mask, px.
        """
        level = np.array(2 * self.levels)
        other = np.where(level < 0, boxes[0], boxes[2])
        way = np.abs(level) * (other - boxes[1]) * OUTWARD / size
        return np.clip(way, -MAX_WAY, MAX_WAY)


class PlacedExtent(TargetExtent):
    """Moves the edges of the followed mask's box by both cues of `EdgeCues`."""

    def __init__(self, head: BoxHead, drawn: Box, prompted: Box | None) -> None:
        """``head``: weights of the cues; ``drawn``: the drawn box, px; ``prompted``: box of the mask on the
        prompted frame, px, None if that mask is empty."""
        self._head = head
        of_mask = [np.nan] * 4 if prompted is None else prompted.edges()
        self.cues = EdgeCues(np.array(drawn.edges()), np.array(of_mask))
        self.is_settled = False
        # For the newest frames: by how much each edge was moved, as a share of the mask's width or height.
        self._relations: deque[Edges] = deque(maxlen=RELATED_FRAMES)

    def add(self, candidates: Candidates, index: int) -> None:
        """Compare the followed mask with the drawn box. Only the first `EXTENT_FRAMES` are used."""
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
        # The published box ends at the image's border, unless the mask's own edge lies a little outside.
        placed = edges + size * outward * OUTWARD
        placed = np.clip(placed, np.minimum(edges, 0.0), np.maximum(edges, image_size + image_size))
        self._relations.append((placed - edges) / size)
        left, top, right, bottom = placed.tolist()
        return index, Box(left, top, right - left, bottom - top)

    def grown_motion(self, motion: Motion) -> Motion:
        """Return the motion with the edges of its box moved as those of the last published boxes were."""
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
    """Return an object that computes the published box of a newly selected target.

    Args:
        head: Constants of the network for `PlacedExtent`; None if the network has none.
        drawn: The drawn box, px; None where points were given.
        prompted: Box of the network's mask on the prompted frame, px; None if the mask is empty.
        image_size: Width and height of the image, px.
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
    """Return width, height, width, height of boxes given by their edges, each at least 1 px: [..., 4]."""
    size = np.maximum(box[..., 2:] - box[..., :2], 1.0)
    return np.concatenate([size, size], axis=-1)


def _level(log_ratios: Edges) -> float:
    """Return the level of the logits at which a mask is as wide, or high, as the drawn box. ``log_ratios``:
    for each of `LEVELS`, the logarithm of the mask's side divided by the drawn box's side."""
    falling = np.minimum.accumulate(log_ratios) - 1e-6 * np.arange(len(LEVELS))
    return float(np.interp(0.0, falling[::-1], LEVELS[::-1]))


def _factor(ratio: float) -> float:
    """Return the factor on a box's side. ``ratio``: drawn side divided by measured side."""
    return min(max(ratio**SHARE, 1.0), MOST)
