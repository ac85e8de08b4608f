"""Chooses a rival: another object, which is shown by a window that misses the target."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

DRAWN = 16  # number of objects from which the one nearest in colour is chosen
NEAREST_SHARE = 0.5  # share of rivals chosen by colour; the others are random
JITTER = 0.15  # standard deviation of the window's centre from the rival's centre, rival sizes
# Smallest size of a rival, in target sizes. It is shown as large as the target, so a smaller one would be
# blurred.
MIN_SIZE = 0.4


@dataclass(frozen=True)
class Looks:
    """All objects of one sampler.

    ``colours`` [n,3]: mean RGB. ``sizes`` [n]: of their boxes, px. ``places`` [n]: name of the scene or film;
    two objects of one place may be the same object.
    """

    colours: NDArray[np.float64]
    sizes: NDArray[np.float64]
    places: NDArray[np.str_]

    def rival(self, rng: np.random.Generator, target: int, size: float) -> int | None:
        """Return the index of a rival for the object ``target``, whose shown size is ``size`` px.

        The rival is from another place. It is drawn at random or by similar colour. None if all objects are
        too small.
        """
        eligible = np.flatnonzero((self.places != self.places[target]) & (self.sizes >= MIN_SIZE * size))
        if not len(eligible):
            return None
        drawn = rng.choice(eligible, DRAWN)
        if rng.random() >= NEAREST_SHARE:
            return int(drawn[0])
        return int(drawn[np.abs(self.colours[drawn] - self.colours[target]).sum(1).argmin()])
