"""Ground truth of a scene: visible part of the target, disappearances, expected returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.geometry import Box
from training.scene_layers import Region

PRESENT_SHARE = 0.3  # visible share from which the target counts as in view
BACK_SHARE = 0.5  # visible share that ends a disappearance
LAST_SEEN_S = 0.5  # visible time from which the prediction is computed


@dataclass(frozen=True)
class Truth:
    """Ground truth of a frame without pixels.

    ``region`` and ``seen`` (bool): where the visible mask may be, and the mask.
    """

    region: Region
    seen: NDArray[np.bool_]
    box: Box | None
    outline: Box
    share: float
    others: tuple[Box | None, ...] = ()


@dataclass(frozen=True)
class Disappearance:
    """Frame indices: ``first`` and ``last`` with nothing visible, ``back`` the first with at least half of
    the target.

    ``kind``: "occluder", "border" or "passing".
    """

    kind: str
    first: int
    last: int
    back: int


def predicted_centre(truth: Sequence[Truth], absence: Disappearance, fps: float) -> NDArray[np.float64]:
    """Centre [2] px predicted by constant velocity for the frame of the return.

    A straight line fitted to the last visible half second.
    """
    last = max(i for i in range(absence.first) if truth[i].share >= PRESENT_SHARE)
    frames = [
        i
        for i in range(max(0, last - round(LAST_SEEN_S * fps) + 1), last + 1)
        if truth[i].share >= PRESENT_SHARE
    ]
    centres = np.array([[truth[i].outline.cx, truth[i].outline.cy] for i in frames])
    slope, offset = np.polyfit(np.array(frames, float), centres, 1)
    return np.asarray(slope * absence.back + offset, np.float64)


def off_prediction(truth: Sequence[Truth], absence: Disappearance, fps: float) -> float:
    """Distance of a return from `predicted_centre`, in box sizes (square root of the area)."""
    outline = truth[absence.back].outline
    away = np.array([outline.cx, outline.cy]) - predicted_centre(truth, absence, fps)
    return float(np.hypot(*away) / outline.size)


def box_of(mask: NDArray[np.bool_], region: Region) -> Box | None:
    """Box of a mask located at a region, None when it is empty."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    if not len(rows):
        return None
    x, y = region[:2]
    return Box.from_edges(x + columns[0], y + rows[0], x + columns[-1] + 1, y + rows[-1] + 1)
