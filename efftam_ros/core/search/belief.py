"""Where a target that is not seen may be: it orders the search and weighs what is found, and forbids nothing.

Two guesses, each a normal distribution that spreads with time: the ground stays (the target moves on over
it, slower and slower), and the image stays (a pilot or a gimbal follows the target). A flat floor covers the
rest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.camera_motion import Matrix, linearised, zoom
from efftam_ros.core.geometry import Box

GROUND_WEIGHT, IMAGE_WEIGHT, FLAT_WEIGHT = 0.6, 0.2, 0.2
# Standard deviation in target sizes, at once and per second: as the motion filter erred with the ground's
# motion and without it, 1 and 2 s ahead on aerial clips.
START_SPREAD, GROUND_SPREAD_PER_S, IMAGE_SPREAD_PER_S = 0.7, 1.2, 2.0
FADING_S = (
    3.0  # time constant of the speed over the ground: an unseen target does not leave the scene by itself
)


@dataclass(frozen=True)
class Sighting:
    """Where the target was seen: box px, velocity over the ground px/s, at a stamp."""

    stamp_ns: int
    box: Box
    velocity: tuple[float, float]


class Belief:
    """Starts from where the target was last, at a time in ns; `follow_camera` and `advance` move it."""

    def __init__(self, stamp_ns: int, box: Box, velocity: tuple[float, float]) -> None:
        self.stamp_ns = self._start_ns = stamp_ns
        self.size = max(box.size, 1.0)
        self._ground: NDArray[np.float64] = np.array([box.cx, box.cy])
        self._image = self._ground.copy()
        self._velocity: NDArray[np.float64] = np.array(velocity, np.float64)

    def follow_camera(self, matrix: Matrix) -> None:
        """Move the guess that the ground stays."""
        x, y = self._ground
        self._ground, derivative = linearised(matrix, x, y)
        self._velocity = derivative @ self._velocity
        self.size *= zoom(matrix, x, y)

    def recognise_place(self, matrix: Matrix, stamp_ns: int, seen: Sighting) -> None:
        """Replace the guess that the ground stays: ``matrix`` is the camera's motion from the image of a
        sighting to that of ``stamp_ns``. What `follow_camera` lost or got wrong between is mended by it."""
        x, y = seen.box.cx, seen.box.cy
        kept = math.exp(-max(0.0, (stamp_ns - seen.stamp_ns) * 1e-9) / FADING_S)
        place, derivative = linearised(matrix, x, y)
        velocity = derivative @ np.array(seen.velocity)
        self.size = max(seen.box.size, 1.0) * zoom(matrix, x, y)
        self._ground = place + velocity * FADING_S * (1 - kept)
        self._velocity = velocity * kept
        self.stamp_ns = stamp_ns

    def advance(self, stamp_ns: int) -> None:
        """Move to a later stamp."""
        dt = max(0.0, (stamp_ns - self.stamp_ns) * 1e-9)
        kept = math.exp(-dt / FADING_S)
        self._ground = self._ground + self._velocity * FADING_S * (1 - kept)
        self._velocity = self._velocity * kept
        self.stamp_ns = stamp_ns

    @property
    def ground(self) -> tuple[float, float]:
        """Where it is if the ground stays, px; may lie outside the image."""
        return float(self._ground[0]), float(self._ground[1])

    @property
    def image(self) -> tuple[float, float]:
        """Where it is if the image stays, px."""
        return float(self._image[0]), float(self._image[1])

    @property
    def spread_px(self) -> float:
        """Standard deviation of the guess that the ground stays."""
        return self.size * (START_SPREAD + GROUND_SPREAD_PER_S * self._gone_s)

    @property
    def _gone_s(self) -> float:
        return (self.stamp_ns - self._start_ns) * 1e-9

    def relative(self, points: NDArray[np.float64], image_size: tuple[int, int]) -> NDArray[np.float64]:
        """For places [n, 2] px: logarithm of the density there in units of the density where the target most
        likely is, at most 0."""
        flat = FLAT_WEIGHT / float(image_size[0] * image_size[1])
        spreads = (self.spread_px, self.size * (START_SPREAD + IMAGE_SPREAD_PER_S * self._gone_s))
        guesses = list(zip((GROUND_WEIGHT, IMAGE_WEIGHT), (self._ground, self._image), spreads, strict=True))

        def density(places: NDArray[np.float64]) -> NDArray[np.float64]:
            total = np.full(len(places), flat)
            for weight, centre, spread in guesses:
                square = ((places - centre) ** 2).sum(axis=1) / spread**2
                total += weight / (2 * math.pi * spread**2) * np.exp(-square / 2)
            return total

        peak = density(np.array([self._ground, self._image])).max()
        return np.asarray(np.minimum(np.log(density(points) / peak), 0.0), np.float64)
