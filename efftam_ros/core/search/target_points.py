"""Points on the target, followed from image to image: they end where something else takes its place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.geometry import Box
from efftam_ros.core.types import Image

# What slides in front of the target, or a jump of the mask to a neighbour, ends nearly all of them within a
# few images, which a target that turns or is blurred seldom does. Of 154 occlusions of the judge's choosing
# half the same 120 targets are found again and 6 wrong things taken with this and without, but 68 of the
# absent frames are claimed in place of 162.
LEAST_BEFORE = 6  # points, for their end to say anything
MOST_FOUND_SHARE = 0.15
DOUBTED_FRAMES = 6  # after that, until there are points again that have been followed for long


@dataclass(frozen=True)
class FoundPoints:
    """The points of the last confirmed image, followed into the present one.

    ``before``: how many had been followed long enough to belong to the target, the most of the last images;
    ``places``: [n, 2] px, where those of them are that were found again.
    """

    before: int
    places: NDArray[np.float64]

    def have_ended(self, box: Box) -> bool:
        """Whether hardly any of them lies in this box of the present image; False where there were too
        few."""
        if self.before < LEAST_BEFORE:
            return False
        x, y = self.places[:, 0] - box.x, self.places[:, 1] - box.y
        inside = np.count_nonzero((x >= 0) & (x <= box.width) & (y >= 0) & (y <= box.height))
        return bool(inside <= MOST_FOUND_SHARE * self.before)


NO_POINTS = FoundPoints(0, np.zeros((0, 2)))


class PointSource(Protocol):
    """Follows points on the target through consecutive images."""

    def reset(self) -> None:
        """Forget all points."""
        ...

    def follow(self, image: Image, expected: Box) -> FoundPoints:
        """Follow the points into the next image. Does not raise on a bad image.

        ``expected``: the target's predicted box there.
        """
        ...

    def keep(self, image: Image, box: Box) -> None:
        """The target is in this box of the image of the last `follow`: points outside it are dropped, and new
        ones are added in it."""
        ...
