"""Tells whether a selected box shows anything that can be recognised."""

from __future__ import annotations

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_ros.core.types import Image
from efftam_ros.images.pixels import Region, to_grey

MIN_CONTRAST = 1.0
"""A region has one uniform shade if the standard deviation of its grey levels is below this. The noise of a
real camera alone exceeds this value."""


def is_blank(image: Image, box: Box) -> bool:
    """Return whether a box and its surroundings have one uniform shade. False for a bad image.

    ``box``: px; the surroundings are three times as wide and high.
    """
    around = Box.from_centre(box.cx, box.cy, 3 * box.width, 3 * box.height)
    try:
        return float(to_grey(image, Region.inside(around, 1.0, image)).std()) < MIN_CONTRAST
    except InputError:
        return False
