"""Computes the motion of the ground between the frames of a clip, so that occluders can be fixed to it."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.geometry import Box

Matrix = NDArray[np.float64]

CORNERS, QUALITY, DISTANCE_PX = 600, 0.01, 6
WINDOW_PX, LEVELS = 21, 4
MIN_INLIERS = 12
TARGET_MARGIN = 1.4  # the target's box, enlarged by this factor, does not count as ground


def ground_motion(pictures: Sequence[NDArray[np.uint8]], boxes: Sequence[Box | None]) -> list[Matrix]:
    """Return the 3x3 homographies from the first image's pixels to those of each image.

    Where no motion can be computed between two images, the ground is assumed not to move.
    """
    motions = [np.eye(3)]
    previous = _grey(pictures[0])
    for picture, box in zip(pictures[1:], boxes[:-1], strict=True):
        current = _grey(picture)
        motions.append(_between(previous, current, box) @ motions[-1])
        previous = current
    return motions


def _between(previous: NDArray[np.uint8], current: NDArray[np.uint8], box: Box | None) -> Matrix:
    allowed = np.full(previous.shape, 255, np.uint8)
    if box is not None:
        wide = Box.from_centre(box.cx, box.cy, box.width * TARGET_MARGIN, box.height * TARGET_MARGIN)
        x0, y0, x1, y1 = (round(max(v, 0.0)) for v in wide.edges())
        allowed[y0:y1, x0:x1] = 0
    corners = cv2.goodFeaturesToTrack(previous, CORNERS, QUALITY, DISTANCE_PX, mask=allowed)
    if corners is None or len(corners) < MIN_INLIERS:
        return np.eye(3)
    corners = np.asarray(corners, np.float32)
    moved, found, _ = cv2.calcOpticalFlowPyrLK(
        previous, current, corners, np.empty_like(corners), winSize=(WINDOW_PX, WINDOW_PX), maxLevel=LEVELS
    )
    kept = found.ravel() == 1
    if kept.sum() < MIN_INLIERS:
        return np.eye(3)
    matrix, inliers = cv2.estimateAffinePartial2D(corners[kept], moved[kept], ransacReprojThreshold=2.0)
    if matrix is None or inliers.sum() < MIN_INLIERS:
        return np.eye(3)
    return np.vstack([matrix, [0.0, 0.0, 1.0]])


def _grey(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.asarray(cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY), np.uint8)
