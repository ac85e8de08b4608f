"""The boxes of masks at several levels of the logits, of their recorded maxima (`boxes_at_levels` of
`efftam_workshop.model.common.layers` computes them in the decoder's graph)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.policies.box_head import LEVELS, Edges

CELL = 4.0  # network px of a mask's pixel


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
