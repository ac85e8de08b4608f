"""Position of the window in each frame of a training clip, with errors like those of a real prediction.

The tracker's window is a square of several target sizes around a predicted centre (`efftam_ros.core.crop`).
Its centre is off, more so while the target manoeuvres; its size follows slowly; it widens while coasting; and
when the target is lost it moves elsewhere to search.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NARROWEST, WIDEST = 2.3, 9.0  # window sides in target sizes; the tracker's normal one is 5, opened 7
LARGE_FACTORS = (1.9, 3.2)  # for targets so large that the window would exceed the image; the tracker's: 2.2
RELOCATION_SHARE = 0.3  # share of the clips with frames whose window misses the target


@dataclass(frozen=True)
class WindowPath:
    """Windows of a clip.

    ``offset``: [n,2], centre of the window from the target's, in target sizes; ``factor``: [n], side in
    target sizes; ``elsewhere``: [n], whether it does not contain the target.
    """

    offset: NDArray[np.float64]
    factor: NDArray[np.float64]
    elsewhere: NDArray[np.bool_]


def draw_path(rng: np.random.Generator, frames: int, relocated: float = RELOCATION_SHARE) -> WindowPath:
    """Draw the windows: the first frame is centred on the prompt, later ones have errors.

    ``relocated``: share of the clips with frames whose window misses the target.
    """
    middle = np.exp(rng.uniform(np.log(NARROWEST), np.log(WIDEST)))
    if rng.random() < 0.5:  # half of the clips with the tracker's most frequent factor
        middle = 5.0 * rng.lognormal(0, 0.2)
    spread = 0.45 if rng.random() < 0.25 else 0.2
    jitter = rng.normal(0, spread, (frames, 2))
    lag = np.cumsum(rng.normal(0, 0.5 * spread, (frames, 2)), 0) if rng.random() < 0.3 else 0.0
    offset = np.clip(jitter + lag, -1.2, 1.2)
    offset[0] = rng.normal(0, 0.04, 2)
    trend = np.concatenate([[0.0], np.full(frames - 1, rng.normal(0, 0.12))])
    factor = middle * np.exp(rng.normal(0, 0.05, frames) + trend)
    elsewhere = np.zeros(frames, bool)
    if frames > 2 and rng.random() < relocated:
        start = int(rng.integers(1, frames))
        stop = start + int(rng.integers(1, max(2, frames - 1)))
        elsewhere[start:stop] = True
        # Found by a search: a wider window with a large offset.
        factor[start:] *= rng.uniform(1.0, 1.5)
        offset[stop : stop + 1] = rng.uniform(-1.6, 1.6, 2)
    return WindowPath(offset, np.clip(factor, 1.6, 1.3 * WIDEST), elsewhere)


def most_extent(rng: np.random.Generator, size: float, image: tuple[int, int]) -> float:
    """Largest extent of the window for a target of ``size`` in an image (width, height), px.

    As in the tracker: about the image's short side, more for large targets, never wider than the image.
    """
    wanted = rng.uniform(*LARGE_FACTORS) * size
    return float(max(min(image) * rng.uniform(0.9, 1.2), min(wanted, max(image))))


def inside(centre: NDArray[np.float64], extent: float, size: tuple[int, int]) -> NDArray[np.float64]:
    """Shift the window's centre as the tracker does, so that as little of it as possible lies outside the
    image.

    ``size``: width and height of the image.
    """
    least = np.minimum(extent, size) / 2
    return np.clip(centre, least - 0.5, np.asarray(size) - least - 0.5)


def away(rng: np.random.Generator, factor: float) -> NDArray[np.float64]:
    """A displacement in target sizes that moves the target out of a window of this factor."""
    angle = rng.uniform(0, 2 * np.pi)
    reach = (0.75 * factor + 0.8) * rng.uniform(1.0, 1.8)
    return np.array([np.cos(angle), np.sin(angle)]) * reach
