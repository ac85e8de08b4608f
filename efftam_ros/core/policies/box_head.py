"""The published box of a network that gives the boxes of its masks at several levels of the logits.

A mask's box lies where the logits cross zero. What is thin (a rotor, skis, arms) or behind bars is less sure
than that, and what surrounds a small target may be surer, so that the box that a person draws lies where they
cross another level. Which one is the target's own: it is taken from the sizes of the first masks after the
selection, compared with the drawn box. What is followed and remembered stays the mask."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.geometry import Box
from efftam_ros.core.policies.drawn_box import TargetExtent
from efftam_ros.core.types import BoxHead, Candidates, Motion

LEVELS = (-1.0, 0.0, 1.0)
"""Of the logits; the boxes at the first and the last are `Candidates.levels`."""
COMPARED = 5  # first confirmed images after the selection whose masks are compared with the drawn box
RELATED_FRAMES = 3  # newest frames by which the motion's box is placed as the measured one
# Of the drawn box's edges outwards from the prompted mask's, in its sizes.
MIN_OFFSET, MAX_OFFSET = -0.5, 1.0
# Of an edge's way to another level, in the mask's sizes: where the logits hardly change, that level may be
# crossed anywhere.
MAX_WAY = 0.5
OUTWARD = np.array([-1.0, -1.0, 1.0, 1.0])

Edges = NDArray[np.float64]
"""Left, top, right, bottom."""


class EdgeCues:
    """Two cues of where one target's edges are."""

    def __init__(self, drawn: Edges, prompted: Edges) -> None:
        """``drawn``: the drawn box; ``prompted``: that of the prompted mask, NaN where it is empty; px of the
        image."""
        self._drawn_size = drawn[2:] - drawn[:2]
        offsets = (drawn - prompted) * OUTWARD / sides(prompted)
        self._offsets: Edges = np.nan_to_num(np.clip(offsets, MIN_OFFSET, MAX_OFFSET))
        self._log_ratios: list[Edges] = []  # [levels, 2], of masks to the drawn box
        self.levels = (0.0, 0.0)
        """At which the masks are as wide, and as high, as the drawn box."""

    @property
    def is_settled(self) -> bool:
        """Whether no more masks are compared."""
        return len(self._log_ratios) == COMPARED

    def compare(self, boxes: Edges) -> None:
        """Compare a followed mask's boxes [levels, 4] px; only those of the first `COMPARED` images count."""
        if self.is_settled:
            return
        sizes = np.maximum(boxes[:, 2:] - boxes[:, :2], 0.5)
        self._log_ratios.append(np.log(sizes / self._drawn_size))
        across, down = np.median(self._log_ratios, axis=0).T
        self.levels = _level(across), _level(down)

    def at_level(self, boxes: Edges) -> Edges:
        """How far outwards of a mask's edges they are at the target's level, px [4]. ``boxes``: of the mask,
        [levels, 4] px."""
        found = [np.interp(self.levels[edge % 2], LEVELS, boxes[:, edge]) for edge in range(4)]
        most = MAX_WAY * sides(boxes[1])
        return np.clip((np.array(found) - boxes[1]) * OUTWARD, -most, most)

    def as_drawn(self, box: Edges) -> Edges:
        """How far outwards of a mask's edges, px [4], the drawn box's would be. ``box``: of the mask, px."""
        return self._offsets * sides(box)


class PlacedBox(TargetExtent):
    """Places the edges of one target's box by both cues."""

    def __init__(self, head: BoxHead, drawn: Box, prompted: Box | None) -> None:
        """``drawn``: px; ``prompted``: box of the prompted frame's mask, px, None where it is empty."""
        self._head = head
        of_mask = np.full(4, np.nan) if prompted is None else _edges(prompted)
        self.cues = EdgeCues(_edges(drawn), of_mask)
        self._relations: deque[Edges] = deque(maxlen=RELATED_FRAMES)

    @property
    def is_settled(self) -> bool:  # type: ignore[override]
        return self.cues.is_settled

    def add(self, candidates: Candidates, index: int) -> None:
        boxes = _at_levels(candidates, index)
        if boxes is not None:
            self.cues.compare(boxes)

    def shown(
        self,
        candidates: Candidates,
        index: int,
        followed: Box,
        estimated: Box,
        image_size: tuple[int, int],
    ) -> tuple[int, Box]:
        edges = _edges(followed)
        outward = self._head.prompt_share * self.cues.as_drawn(edges)
        boxes = _at_levels(candidates, index)
        if boxes is not None:
            outward += self._head.level_share * self.cues.at_level(boxes)
        placed = edges + outward * OUTWARD
        # The target ends where the image does; a mask's own edge may lie a little outside.
        limit = np.array([0.0, 0.0, *image_size])
        placed[:2] = np.maximum(placed[:2], np.minimum(edges, limit)[:2])
        placed[2:] = np.minimum(placed[2:], np.maximum(edges, limit)[2:])
        self._relations.append((placed - edges) / sides(edges))
        return index, Box.from_edges(*placed)

    def grown_motion(self, motion: Motion) -> Motion:
        if not self._relations:
            return motion
        relation = np.median(self._relations, axis=0)
        edges = _edges(motion.box)
        across, down = (1.0 + relation[2:] - relation[:2]).tolist()
        width_rate, height_rate = motion.size_rate
        box = Box.from_edges(*(edges + relation * sides(edges)))
        return replace(motion, box=box, size_rate=(across * width_rate, down * height_rate))


def _at_levels(candidates: Candidates, index: int) -> Edges | None:
    """The boxes [levels, 4] of a candidate; None for an empty mask, or where the network gives no levels."""
    if candidates.levels is None or candidates.box(index).is_empty:
        return None
    outer, inner = candidates.levels[index].astype(np.float64)
    return np.stack([outer, candidates.boxes[index].astype(np.float64), inner])


def _level(log_ratios: Edges) -> float:
    """The level at which a mask's side is the drawn box's, given those sides' log ratios at `LEVELS`."""
    falling = np.minimum.accumulate(log_ratios) - 1e-6 * np.arange(len(LEVELS))
    return float(np.interp(0.0, falling[::-1], LEVELS[::-1]))


def _edges(box: Box) -> Edges:
    return np.array(box.edges())


def sides(box: Edges) -> Edges:
    """Width and height, at least one px, twice: [..., 4]."""
    size = np.maximum(box[..., 2:] - box[..., :2], 1.0)
    return np.concatenate([size, size], axis=-1)
