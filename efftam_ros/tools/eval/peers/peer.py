"""The interface of a peer tracker."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.geometry import Box


class Peer(Protocol):
    """A tracker that is given the target's box once and gives a box for every later frame."""

    @property
    def name(self) -> str: ...

    def start(self, bgr: NDArray[np.uint8], box: Box) -> None:
        """Initialise on a frame, uint8 [H, W, 3] BGR, with a box in px."""
        ...

    def update(self, bgr: NDArray[np.uint8]) -> Box | None:
        """The box in the next frame, None where the tracker reports a failure."""
        ...
