"""Order of the windows in which a lost target is searched for; every position is covered in bounded time."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.geometry import View
from efftam_ros.core.search.belief import Belief

TILE = 1.2  # side of a window of the sweep, in sides of the window that follows the target
TILE_STEP = 0.8  # distance of neighbouring windows, in their sides: what is cut by one is whole in the next


class Sweep:
    """Windows that cover the image, most likely ones first; none is repeated before all others were used."""

    def __init__(self, image_size: tuple[int, int], extent_px: float, side: int) -> None:
        """``extent_px``: side of the window that follows the target; ``side``: of the network's input."""
        self.image_size, self._side = image_size, side
        self._extent = TILE * extent_px
        axes = []
        for length in image_size:
            count = max(1, math.ceil((length - self._extent) / (TILE_STEP * self._extent)) + 1)
            if count == 1:
                axes.append(np.array([length / 2]))
            else:
                axes.append(np.linspace(self._extent / 2, length - self._extent / 2, count))
        self._centres: NDArray[np.float64] = np.array([(x, y) for x in axes[0] for y in axes[1]])
        self._visits = np.zeros(len(self._centres), int)

    def __len__(self) -> int:
        return len(self._centres)

    def next(self, count: int, belief: Belief | None) -> list[View]:
        """The next windows, at most ``count``."""
        worth = belief.relative(self._centres, self.image_size) if belief is not None else np.zeros(len(self))
        order = np.lexsort((-worth, self._visits))[:count]
        self._visits[order] += 1
        return [View.window(x, y, self._extent, self._side) for x, y in self._centres[order]]
