"""Where the edges of a target's box are, given its masks at several levels of the logits and the drawn box.

A mask's box lies where the logits cross zero. What is thin (a rotor, skis, arms) or behind bars is less sure
than that, and what surrounds a small target may be surer, so that the box that a person draws lies where they
cross another level. Which one is the target's own: it is taken from the sizes of the first masks after the
selection, compared with the drawn box.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

CELL = 4.0  # network px of a mask's pixel
LEVELS = (-1.0, 0.0, 1.0)
"""Of the logits."""
COMPARED = 5  # first followed images after the selection whose masks are compared with the drawn box
MIN_OFFSET, MAX_OFFSET = -0.5, 1.0  # of the drawn box's edges outwards from the prompted mask's, in its sizes
OUTWARD = np.array([-1.0, -1.0, 1.0, 1.0])

Edges = NDArray[np.float64]
"""Left, top, right, bottom."""


def boxes_at_levels(profiles: NDArray[np.floating]) -> Edges:
    """Boxes [N, levels, 4], network px, of masks whose maximum logits of each column and row are ``profiles``
    [N, 2, L].

    At level 0 as `efftam_ros.runtime.preprocess.boxes_and_areas`. At the others the crossing that is next to
    that one, outwards or inwards; of a mask whose largest logit is below 2 the inner level is half of it. NaN
    for an empty mask.
    """
    count, _, side = profiles.shape
    flat = profiles.astype(np.float64).reshape(2 * count, side)
    top = flat.max(axis=1)
    places, crosses = _crossings(flat)
    first, last = _outermost(places, crosses)
    outer_places, crosses = _crossings(flat - LEVELS[0])
    outer = (
        np.where(crosses & (outer_places <= first[:, None]), outer_places, -np.inf).max(axis=1),
        np.where(crosses & (outer_places >= last[:, None]), outer_places, np.inf).min(axis=1),
    )
    inner_places, crosses = _crossings(flat - np.minimum(LEVELS[2], top / 2)[:, None])
    inner = (
        np.where(crosses & (inner_places >= first[:, None]), inner_places, np.inf).min(axis=1),
        np.where(crosses & (inner_places <= last[:, None]), inner_places, -np.inf).max(axis=1),
    )
    edges = np.array([outer, (first, last), inner])  # [levels, low or high, 2 N]
    boxes = edges.reshape(len(LEVELS), 2, count, 2).transpose(2, 0, 1, 3).reshape(count, len(LEVELS), 4)
    boxes[top.reshape(count, 2)[:, 0] <= 0] = np.nan
    return CELL * boxes


def _outermost(places: Edges, crosses: NDArray[np.bool_]) -> tuple[Edges, Edges]:
    first = np.where(crosses, places, np.inf).min(axis=1)
    return first, np.where(crosses, places, -np.inf).max(axis=1)


def _crossings(profiles: Edges) -> tuple[Edges, NDArray[np.bool_]]:
    """Between any two cells of each profile [K, L], and at its ends, where the line between them is zero, in
    cells, and whether it is zero there, [K, L + 1] each."""
    side = profiles.shape[1]
    padded = np.pad(profiles, ((0, 0), (1, 1)), constant_values=-1.0)
    a, b = padded[:, :-1], padded[:, 1:]
    start, length = np.arange(-1.0, side) + 0.5, np.ones(side + 1)
    # Between the border and the first or last cell's centre lies nothing: a mask that touches the border ends
    # exactly there.
    start[0], start[-1], length[0], length[-1] = 0.0, side, 0.0, 0.0
    crosses = (a > 0) ^ (b > 0)
    return start + length * a / np.where(crosses, a - b, 1.0), crosses


class PlacedBox:
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

    def compare(self, boxes: Edges) -> None:
        """Compare a followed mask's boxes [levels, 4] px; only those of the first `COMPARED` images count."""
        if len(self._log_ratios) == COMPARED:
            return
        sizes = np.maximum(boxes[:, 2:] - boxes[:, :2], 0.5)
        self._log_ratios.append(np.log(sizes / self._drawn_size))
        across, down = np.median(self._log_ratios, axis=0).T
        self.levels = _level(across), _level(down)

    def cues(self, boxes: Edges) -> tuple[Edges, Edges]:
        """How far outwards of a mask's edges, px [4], the target's are: at its level of the logits, and as
        the drawn box's were of the prompted mask's. ``boxes``: of the mask, [levels, 4] px."""
        at_level = [np.interp(self.levels[edge % 2], LEVELS, boxes[:, edge]) for edge in range(4)]
        return (np.array(at_level) - boxes[1]) * OUTWARD, self._offsets * sides(boxes[1])


def _level(log_ratios: Edges) -> float:
    """The level at which a mask's side is the drawn box's, given those sides' log ratios at `LEVELS`."""
    falling = np.minimum.accumulate(log_ratios) - 1e-6 * np.arange(len(LEVELS))
    return float(np.interp(0.0, falling[::-1], LEVELS[::-1]))


def sides(box: Edges) -> Edges:
    """Width and height, at least one px, twice: [..., 4]."""
    size = np.maximum(box[..., 2:] - box[..., :2], 1.0)
    return np.concatenate([size, size], axis=-1)
