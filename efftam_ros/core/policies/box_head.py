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
COMPARED_FRAMES = 5  # first confirmed frames after the selection whose masks are compared with the drawn box
RELATED_FRAMES = 3  # newest frames by which the motion's box is placed as the measured one
MIN_OFFSET, MAX_OFFSET = -0.5, 1.0  # of the drawn box's edges outwards from the prompted mask's, in its sizes
_OUTWARD = np.array([-1.0, -1.0, 1.0, 1.0])


class PlacedBox(TargetExtent):
    """Places the edges of one target's box."""

    def __init__(self, head: BoxHead, drawn: Box, prompted: Box | None) -> None:
        """``drawn``: px; ``prompted``: box of the prompted frame's mask, px, None where it is empty."""
        self._head = head
        self._drawn_size = np.array([drawn.width, drawn.height])
        offsets = np.zeros(4)
        if prompted is not None:
            offsets = (_edges(drawn) - _edges(prompted)) * _OUTWARD / _sides(_edges(prompted))
        self._offsets: NDArray[np.float64] = np.clip(offsets, MIN_OFFSET, MAX_OFFSET)
        self._log_ratios: list[NDArray[np.float64]] = []  # [levels, 2], of masks to the drawn box
        self.levels: tuple[float, float] = (0.0, 0.0)
        """At which the masks are as wide, and as high, as the drawn box."""
        self.is_settled = False
        self._relations: deque[NDArray[np.float64]] = deque(maxlen=RELATED_FRAMES)

    def add(self, candidates: Candidates, index: int) -> None:
        """See `TargetExtent`; only the first `COMPARED_FRAMES` are used."""
        boxes = None if self.is_settled else _at_levels(candidates, index)
        if boxes is None:
            return
        sizes = boxes[:, 2:] - boxes[:, :2]
        self._log_ratios.append(np.log(np.maximum(sizes, 0.5) / self._drawn_size))
        self.is_settled = len(self._log_ratios) == COMPARED_FRAMES
        across, down = np.median(self._log_ratios, axis=0).T
        self.levels = _level(across), _level(down)

    def shown(
        self,
        candidates: Candidates,
        index: int,
        followed: Box,
        estimated: Box,
        image_size: tuple[int, int],
    ) -> tuple[int, Box]:
        edges = _edges(followed)
        level, prompt = self.cues(candidates, index, followed)
        placed = edges + (self._head.level_share * level + self._head.prompt_share * prompt) * _OUTWARD
        # The target ends where the image does; a mask's own edge may lie a little outside.
        limit = np.array([0.0, 0.0, *image_size])
        placed = np.where(_OUTWARD < 0, np.maximum(placed, np.minimum(edges, limit)), placed)
        placed = np.where(_OUTWARD > 0, np.minimum(placed, np.maximum(edges, limit)), placed)
        self._relations.append((placed - edges) / _sides(edges))
        return index, Box.from_edges(*placed)

    def cues(
        self, candidates: Candidates, index: int, followed: Box
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """How far outwards of the mask's edges, px [4], the target's are: at its level of the logits, and as
        the drawn box's were of the prompted mask's."""
        prompt = self._offsets * _sides(_edges(followed))
        boxes = _at_levels(candidates, index)
        if boxes is None:
            return np.zeros(4), prompt
        at_level = [np.interp(self.levels[edge % 2], LEVELS, boxes[:, edge]) for edge in range(4)]
        return (np.array(at_level) - boxes[1]) * _OUTWARD, prompt

    def grown_motion(self, motion: Motion) -> Motion:
        if not self._relations:
            return motion
        relation = np.median(self._relations, axis=0)
        edges = _edges(motion.box)
        across, down = (1.0 + relation[2:] - relation[:2]).tolist()
        width_rate, height_rate = motion.size_rate
        box = Box.from_edges(*(edges + relation * _sides(edges)))
        return replace(motion, box=box, size_rate=(across * width_rate, down * height_rate))


def _at_levels(candidates: Candidates, index: int) -> NDArray[np.float64] | None:
    """The boxes [levels, 4] of a candidate; None for an empty mask, or where the network gives no levels."""
    if candidates.levels is None or candidates.box(index).is_empty:
        return None
    outer, inner = candidates.levels[index].astype(np.float64)
    return np.stack([outer, candidates.boxes[index].astype(np.float64), inner])


def _level(log_ratios: NDArray[np.float64]) -> float:
    """The level at which a mask's side is the drawn box's, given those sides' log ratios at `LEVELS`."""
    falling = np.minimum.accumulate(log_ratios) - 1e-6 * np.arange(len(LEVELS))
    return float(np.interp(0.0, falling[::-1], LEVELS[::-1]))


def _edges(box: Box) -> NDArray[np.float64]:
    return np.array(box.edges())


def _sides(edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Width and height, twice."""
    return np.tile(np.maximum(edges[2:] - edges[:2], 1.0), 2)
