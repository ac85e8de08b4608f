"""A network that tells individuals apart, by a script."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.geometry import Box
from efftam_ros.core.types import Image


def vector(cosine: float) -> NDArray[np.float32]:
    """A vector of length 1 with this cosine with `vector(1.0)`."""
    return np.array([cosine, np.sqrt(max(0.0, 1.0 - cosine**2))], np.float32)


class ScriptedLooks:
    """A `Describe`: what a box shows has the cosine ``script(box)`` with `vector(1.0)`; NaN: not known."""

    def __init__(self, script: Callable[[Box], float]) -> None:
        self._script = script
        self.asked: list[Box] = []

    def __call__(self, image: Image, boxes: Sequence[Box]) -> NDArray[np.float32]:
        self.asked += boxes
        return np.stack([vector(self._script(box)) for box in boxes])
