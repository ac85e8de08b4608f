"""Camera motion from the images: corners, pyramidal Lucas-Kanade flow and RANSAC on a reduced grey image.

The same steps as the background motion of many trackers (for instance BoT-SORT, arXiv 2206.14651, 3.2).
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.camera_motion import Matrix, rejection
from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_ros.core.types import CameraMotion, Image
from efftam_ros.runtime.image.encodings import to_bgr

Grey = NDArray[np.uint8]

SMALL_WIDTH_PX = 320  # width of the reduced image
CORNERS = 100
CORNER_QUALITY = 0.01  # share of the best corner's score
CORNER_DISTANCE_PX = 8  # of the small image
FLOW_WINDOW_PX, FLOW_LEVELS = 11, 3
INLIER_PX = 1.0  # of the small image
LEAST_INLIERS = 12
LEAST_INLIER_SHARE = 0.3
LEAST_SPREAD = 0.12  # standard deviation of the inliers, in image sides, along both axes
TARGET_MARGIN = 1.5  # sides of the excluded area around the target, in target sides


class ImageCameraMotion:
    """A `CameraMotionSource` that compares consecutive images."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._previous: Grey | None = None
        self._size = (0, 0)

    def estimate(self, image: Image, stamp_ns: int, target: Box | None) -> CameraMotion:
        try:
            small = _small_grey(image)
        except InputError as refusal:
            return CameraMotion(None, str(refusal))
        previous, size = self._previous, self._size
        self._previous, self._size = small, (image.width, image.height)
        if previous is None:
            return CameraMotion(None, "no previous image")
        if size != self._size:
            return CameraMotion(None, f"the image's size changed from {size} to {self._size}")
        scale = small.shape[1] / image.width
        found = _between(previous, small, _left_out(target, scale, previous.shape))
        if isinstance(found, str):
            return CameraMotion(None, f"camera motion unknown: {found}")
        enlarged = np.diag([1 / scale, 1 / scale, 1.0]) @ found @ np.diag([scale, scale, 1.0])
        matrix = np.asarray(enlarged / enlarged[2, 2], np.float64)
        fault = rejection(matrix, image.width, image.height)
        return CameraMotion(None, f"camera motion refused: {fault}") if fault else CameraMotion(matrix)


def _small_grey(image: Image) -> Grey:
    bgr: NDArray[Any] = to_bgr(image)
    height = max(1, round(image.height * SMALL_WIDTH_PX / image.width))
    if image.width >= 4 * SMALL_WIDTH_PX:
        # Averaging all pixels of a large image would dominate the cost; every second pixel is sufficient.
        bgr = cv2.resize(bgr, (2 * SMALL_WIDTH_PX, 2 * height), interpolation=cv2.INTER_NEAREST)
    if image.width > SMALL_WIDTH_PX:
        bgr = cv2.resize(bgr, (SMALL_WIDTH_PX, height), interpolation=cv2.INTER_AREA)
    return np.asarray(cv2.cvtColor(bgr, cv2.COLOR_BGR2GRAY), np.uint8)


def _left_out(target: Box | None, scale: float, shape: tuple[int, ...]) -> Grey:
    allowed = np.full(shape, 255, np.uint8)
    if target is not None and not target.is_empty:
        half = np.array([target.width, target.height]) * TARGET_MARGIN / 2
        x0, y0 = (np.maximum(np.array([target.cx, target.cy]) - half, 0) * scale).astype(int)
        x1, y1 = (np.maximum(np.array([target.cx, target.cy]) + half, 0) * scale).astype(int) + 1
        allowed[y0:y1, x0:x1] = 0
    return allowed


def _between(previous: Grey, present: Grey, allowed: Grey) -> Matrix | str:
    """The homography between two reduced images, or the reason why there is none."""
    corners = cv2.goodFeaturesToTrack(previous, CORNERS, CORNER_QUALITY, CORNER_DISTANCE_PX, mask=allowed)
    count = 0 if corners is None else len(corners)
    if count < LEAST_INLIERS:
        return f"{count} corners in the previous image (at least {LEAST_INLIERS})"
    start = np.asarray(corners, np.float32)
    found = _homography(previous, present, start, start)
    if isinstance(found, str):
        # A fast pan exceeds the range of the flow; the shift of the whole image is used as the initial guess.
        halves = [
            np.asarray(cv2.resize(one, None, fx=0.5, fy=0.5), np.float32) for one in (previous, present)
        ]
        (dx, dy), _ = cv2.phaseCorrelate(halves[0], halves[1])
        found = _homography(previous, present, start, start + np.array([2 * dx, 2 * dy], np.float32))
    return found


def _homography(
    previous: Grey, present: Grey, start: NDArray[np.float32], guess: NDArray[np.float32]
) -> Matrix | str:
    moved, found, _ = cv2.calcOpticalFlowPyrLK(
        previous,
        present,
        start,
        guess.copy(),
        winSize=(FLOW_WINDOW_PX, FLOW_WINDOW_PX),
        maxLevel=FLOW_LEVELS,
        flags=cv2.OPTFLOW_USE_INITIAL_FLOW,
    )
    kept = found.ravel() == 1
    before, after = start[kept].reshape(-1, 2), moved[kept].reshape(-1, 2)
    if len(before) < LEAST_INLIERS:
        return f"{len(before)} corners were found again (at least {LEAST_INLIERS})"
    matrix, mask = cv2.findHomography(before, after, cv2.RANSAC, INLIER_PX, maxIters=200, confidence=0.99)
    inliers = 0 if matrix is None else int(mask.sum())
    if inliers < max(LEAST_INLIERS, LEAST_INLIER_SHARE * len(start)):
        return f"{inliers} of {len(start)} corners move together (at least {LEAST_INLIER_SHARE:.0%})"
    spread = before[mask.ravel() == 1].std(axis=0) / np.array(previous.shape[::-1])
    if spread.min() < LEAST_SPREAD:
        return f"the corners that move together fill only a part of the image (spread {spread.min():.2f})"
    return np.asarray(matrix, np.float64)
