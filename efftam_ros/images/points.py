"""Follows points on the target from image to image.

The points are corners. Pyramidal Lucas-Kanade flow follows them forwards and, as a check, backwards, as in
Median Flow (Kalal et al., "Forward-Backward Error", ICPR 2010).
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_ros.core.types import NO_POINTS, FoundPoints, Image
from efftam_ros.images.pixels import Region, to_grey

Grey = NDArray[np.uint8]

INNER_SHARE = 0.8  # points lie within this share of the box's sides: its border often shows background

# A region is uniform if the standard deviation of its grey levels is below this. The noise of a real camera
# alone exceeds this value.
MIN_CONTRAST = 1.0


def is_blank(image: Image, box: Box) -> bool:
    """Return whether a box and its surroundings have one uniform shade. False for a bad image.

    ``box``: px; the surroundings are three times as wide and high.
    """
    around = Box.from_centre(box.cx, box.cy, 3 * box.width, 3 * box.height)
    try:
        return float(to_grey(image, Region.inside(around, 1.0, image)).std()) < MIN_CONTRAST
    except InputError:
        return False


# When fewer than MIN_POINTS points are left, new points are detected, until there are MAX_POINTS.
MAX_POINTS, MIN_POINTS = 30, 20
LONG_IMAGES = 4  # a point is reported only after it was followed through this many images
# The present number of points is compared with the largest number in this many last images.
COMPARED_IMAGES = 3
TARGET_PX = 48.0  # a larger target is reduced to this size in its patch, px
# Margin of a patch on every side of the target, px of the patch. A point can be followed if it is at most
# this far from its expected position.
MARGIN_PX = 20
# A patch is used for the next image too if two conditions are met. The margin around the target is at least
# MIN_MARGIN_PX, px of the patch. The scale of a new patch would differ by at most the factor MAX_RESCALING.
MIN_MARGIN_PX, MAX_RESCALING = 15, 1.15
MIN_SIDE_PX = 8  # least width and height of the part of a patch that lies in the image, image px
POINT_QUALITY = 0.02  # least score of a corner, as a share of the best corner's score
GAPS = 12.0  # the least distance of two points is the target's size divided by this
MIN_GAP_PX = 2.0  # the least distance of two points is never below this, px of the patch
FLOW: dict[str, Any] = {
    "winSize": (9, 9),
    "maxLevel": 2,
    "criteria": (cv2.TERM_CRITERIA_COUNT | cv2.TERM_CRITERIA_EPS, 15, 0.03),
    "flags": cv2.OPTFLOW_USE_INITIAL_FLOW,
}
MAX_RETURN_PX = 1.0  # largest forward-backward error, px of the patch


@dataclass(frozen=True)
class _Patch:
    """A square of grey pixels around the target, cut out of an image and reduced.

    ``grey``: uint8 [h, h]; ``x``, ``y``: left and top edge in the image, px; ``side``: image px; ``scale``:
    patch px per image px; ``cx``, ``cy``: the target's centre in the image, px.
    """

    grey: Grey
    x: int
    y: int
    side: int
    scale: float
    cx: float
    cy: float

    def fits(self, box: Box) -> bool:
        """Return whether a new patch around ``box`` would differ little, so that this patch can be kept."""
        margin = MIN_MARGIN_PX / self.scale
        x0, y0, x1, y1 = box.edges()
        right, bottom = self.x + self.side - margin, self.y + self.side - margin
        is_inside = x0 >= self.x + margin and y0 >= self.y + margin and x1 <= right and y1 <= bottom
        return is_inside and 1 / MAX_RESCALING < _reduction(box) * self.scale < MAX_RESCALING


class FlowPoints:
    """A `PointSource` that follows corners on the target by optical flow."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._patch: _Patch | None = None  # the patch of the last image that was passed to `keep`
        self._present: _Patch | None = None  # the patch of the last image that was passed to `follow`
        self._places: NDArray[np.float64] = np.zeros((0, 2))  # x and y of each point, image px
        # Through how many images each point was followed.
        self._ages: NDArray[np.int64] = np.zeros(0, np.int64)
        self._counts: deque[int] = deque(maxlen=COMPARED_IMAGES)

    def follow(self, image: Image, expected: Box) -> FoundPoints:
        patch = self._patch
        if patch is None:
            return NO_POINTS
        x = patch.x + round(expected.x + expected.width / 2 - patch.cx)
        y = patch.y + round(expected.y + expected.height / 2 - patch.cy)
        present = _grey(image, x, y, patch.side, patch.scale)
        if present is None:
            self.reset()
            return NO_POINTS
        self._present = replace(patch, grey=present, x=x, y=y)
        is_long = self._ages >= LONG_IMAGES
        self._counts.append(int(np.count_nonzero(is_long)))
        if len(is_long):
            start = ((self._places - (patch.x, patch.y)) * patch.scale).astype(np.float32).reshape(-1, 1, 2)
            moved, found, _ = cv2.calcOpticalFlowPyrLK(patch.grey, present, start, start.copy(), **FLOW)
            back, returned, _ = cv2.calcOpticalFlowPyrLK(present, patch.grey, moved, start.copy(), **FLOW)
            error = np.hypot(*(back - start).reshape(-1, 2).T)
            followed = (found.ravel() == 1) & (returned.ravel() == 1) & (error < MAX_RETURN_PX)
            self._places = (moved.reshape(-1, 2).astype(np.float64) / patch.scale + (x, y))[followed]
            self._ages, is_long = self._ages[followed], is_long[followed]
        return FoundPoints(max(self._counts), self._places[is_long])

    def keep(self, image: Image, box: Box) -> None:
        patch, self._present = self._present, None
        if patch is None or not patch.fits(box):
            patch = _patch(image, box)
        if patch is None:
            self.reset()
            return
        x0, y0, x1, y1 = box.edges()
        places = self._places
        inside = (places >= (x0, y0)).all(axis=1) & (places <= (x1, y1)).all(axis=1)
        self._places, self._ages = places[inside], self._ages[inside] + 1
        self._patch = replace(patch, cx=box.cx, cy=box.cy)
        self._add(self._patch, box)

    def _add(self, patch: _Patch, box: Box) -> None:
        """Detect new points on the target, at some distance from those that are followed already."""
        if len(self._places) >= MIN_POINTS:
            return
        missing = MAX_POINTS - len(self._places)
        gap = max(MIN_GAP_PX, box.size * patch.scale / GAPS)
        allowed = np.zeros(patch.grey.shape, np.uint8)
        inner = Box.from_centre(box.cx, box.cy, INNER_SHARE * box.width, INNER_SHARE * box.height)
        left, top, right, bottom = (
            (v - o) * patch.scale for v, o in zip(inner.edges(), 2 * (patch.x, patch.y), strict=True)
        )
        allowed[max(0, int(top)) : math.ceil(bottom), max(0, int(left)) : math.ceil(right)] = 255
        for px, py in ((self._places - (patch.x, patch.y)) * patch.scale).astype(int).tolist():
            cv2.circle(allowed, (px, py), int(gap), 0, -1)
        corners = cv2.goodFeaturesToTrack(patch.grey, missing, POINT_QUALITY, gap, mask=allowed)
        if corners is not None:
            new = corners.reshape(-1, 2) / patch.scale + (patch.x, patch.y)
            self._places = np.concatenate([self._places, new])
            self._ages = np.concatenate([self._ages, np.zeros(len(new), np.int64)])


def _reduction(box: Box) -> float:
    return max(1.0, box.size / TARGET_PX)


def _patch(image: Image, box: Box) -> _Patch | None:
    reduction = _reduction(box)
    side = math.ceil(max(box.width, box.height) + 2 * MARGIN_PX * reduction)
    x, y = math.floor(box.cx - side / 2), math.floor(box.cy - side / 2)
    scale = math.ceil(side / reduction) / side
    grey = _grey(image, x, y, side, scale)
    return None if grey is None else _Patch(grey, x, y, side, scale, box.cx, box.cy)


def _grey(image: Image, x: int, y: int, side: int, scale: float) -> Grey | None:
    """Cut a square out of an image and reduce it, uint8 [h, h]. Outside the image its border is repeated.

    ``x``, ``y``, ``side``: left edge, top edge and side, image px; ``scale``: patch px per image px. Returns
    None if too little of the square lies in the image, and for a bad image.
    """
    region = Region(max(x, 0), max(y, 0), min(x + side, image.width), min(y + side, image.height))
    if region.x1 - region.x0 < MIN_SIDE_PX or region.y1 - region.y0 < MIN_SIDE_PX:
        return None
    left, right = round((region.x0 - x) * scale), round((region.x1 - x) * scale)
    top, bottom = round((region.y0 - y) * scale), round((region.y1 - y) * scale)
    if left >= right or top >= bottom:  # the part in the image is less than one pixel of the reduced patch
        return None
    try:
        # To average all rows of a large target would dominate the computing time, so some rows are skipped.
        grey = to_grey(image, region, row_step=max(1, int(0.5 / scale)))
    except InputError:
        return None
    reduced = cv2.resize(grey, (right - left, bottom - top), interpolation=cv2.INTER_AREA)
    whole = round(side * scale)
    borders = top, whole - top - len(reduced), left, whole - left - reduced.shape[1]
    if any(borders):
        reduced = cv2.copyMakeBorder(reduced, *borders, cv2.BORDER_REPLICATE)
    return np.asarray(reduced, np.uint8)
