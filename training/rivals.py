"""Choice of another object, which a window that misses the target shows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

DRAWN = 16  # objects of which the one nearest in colour is chosen
NEAREST_SHARE = 0.5  # share of the choices by colour; the others are at random
JITTER = 0.15  # standard deviation of the window's centre from the rival's, in its sizes
MIN_SIZE = 0.4  # of the target's: it is shown as large as the target, a smaller one would be blurred


@dataclass(frozen=True)
class Looks:
    """All objects of one sampler: ``colours`` [n,3] mean RGB, ``sizes`` [n] px of their boxes, ``places`` [n]
    names of the scene or film, in which another object may be the same one."""

    colours: NDArray[np.float64]
    sizes: NDArray[np.float64]
    places: NDArray[np.str_]

    def rival(self, rng: np.random.Generator, target: int, size: float) -> int | None:
        """Index of an object of another place for the object ``target``, whose shown size is ``size`` px.

        It is of similar colour or drawn at random; None if all are too small.
        """
        eligible = np.flatnonzero((self.places != self.places[target]) & (self.sizes >= MIN_SIZE * size))
        if not len(eligible):
            return None
        drawn = rng.choice(eligible, DRAWN)
        if rng.random() >= NEAREST_SHARE:
            return int(drawn[0])
        return int(drawn[np.abs(self.colours[drawn] - self.colours[target]).sum(1).argmin()])
