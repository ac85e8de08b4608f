"""Choice of another object of similar colour, which a window that misses the target shows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

DRAWN = 16  # objects of which the one nearest in colour is chosen
NEAREST_SHARE = 0.5  # share of the choices by colour; the others are at random
JITTER = 0.15  # standard deviation of the window's centre from the rival's, in its sizes


def choose_rival(
    rng: np.random.Generator,
    colours: NDArray[np.float64],
    colour: NDArray[np.float64],
    is_other: Callable[[int], bool],
) -> int | None:
    """Index of an object that ``is_other`` accepts, by colour or at random; None if none was drawn.

    ``colours``: [n,3] mean RGB of all objects; ``colour``: the target's.
    """
    drawn = [int(i) for i in rng.integers(len(colours), size=DRAWN) if is_other(int(i))]
    if not drawn:
        return None
    if rng.random() >= NEAREST_SHARE:
        return drawn[0]
    return min(drawn, key=lambda i: float(np.abs(colours[i] - colour).sum()))
