"""Camera motion from the images: corners, pyramidal Lucas-Kanade flow and RANSAC on a reduced grey image.

The same steps as the background motion of many trackers (for instance BoT-SORT, arXiv 2206.14651, 3.2).
Over large motions an image is registered with the kept one by SIFT features (Lowe, IJCV 2004).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_ros.core.motion import MOST_SHIFT, Matrix, rejection
from efftam_ros.core.types import CameraMotion, Image
from efftam_ros.runtime.image.encodings import to_grey

# SIFT takes 21 to 26 ms on aerial images where ORB takes 3 to 5, but ORB registered moving traffic, or
# nothing, on small images.
FEATURES = 300
CONTRAST = 0.02  # half of Lowe's: aerial images are hazy
RATIO = 0.8  # of the distances of the best and the second-best match (Lowe, 7.1)
LEAST_MATCHES = 14  # that agree with one homography
LEAST_SHARE = 0.3  # of the matches
MATCH_PX = 2.0
LEAST_MATCH_SPREAD = 0.1  # standard deviation of the agreeing matches, in image sides, along both axes


@dataclass(frozen=True)
class Landmarks:
    """Features of a grey image. ``points``: float32 [N, 2] px; ``descriptors``: float32 [N, 128]."""

    size: tuple[int, int]
    points: NDArray[np.float32]
    descriptors: NDArray[np.float32]

    @classmethod
    def of(cls, grey: NDArray[np.uint8], allowed: NDArray[np.uint8] | None = None) -> Landmarks:
        """Detect the features of an image uint8 [H, W], only where ``allowed`` is not 0."""
        cv: Any = cv2  # OpenCV 4.5's type hints lack SIFT
        points, descriptors = cv.SIFT_create(FEATURES, contrastThreshold=CONTRAST).detectAndCompute(
            grey, allowed
        )
        if descriptors is None:
            descriptors = np.zeros((0, 128), np.float32)
        where = np.array([p.pt for p in points], np.float32).reshape(-1, 2)
        return cls((grey.shape[1], grey.shape[0]), where, np.asarray(descriptors, np.float32))

    def motion_to(self, other: Landmarks) -> Matrix | str:
        """The homography from this image to another, or the reason why there is none."""
        count = min(len(self.points), len(other.points))
        if count < LEAST_MATCHES:
            return f"{count} features (at least {LEAST_MATCHES})"
        pairs = cv2.BFMatcher(cv2.NORM_L2).knnMatch(self.descriptors, other.descriptors, k=2)
        clear = [best for best, second in pairs if best.distance < RATIO * second.distance]
        if len(clear) < LEAST_MATCHES:
            return f"{len(clear)} features were recognised (at least {LEAST_MATCHES})"
        before = self.points[[match.queryIdx for match in clear]]
        after = other.points[[match.trainIdx for match in clear]]
        matrix, mask = cv2.findHomography(before, after, cv2.RANSAC, MATCH_PX, maxIters=500, confidence=0.99)
        agreeing = 0 if matrix is None else int(mask.sum())
        if agreeing < max(LEAST_MATCHES, LEAST_SHARE * len(clear)):
            return f"{agreeing} of {len(clear)} recognised features agree (at least {LEAST_SHARE:.0%})"
        spread = before[mask.ravel() == 1].std(axis=0) / np.array(self.size)
        if spread.min() < LEAST_MATCH_SPREAD:
            return f"the features that agree fill only a part of the image (spread {spread.min():.2f})"
        return np.asarray(matrix, np.float64)


Grey = NDArray[np.uint8]
Corners = NDArray[np.float32]

NO_CORNERS: Corners = np.zeros((0, 1, 2), np.float32)
SMALL_WIDTH_PX = 320  # width of the reduced image
MOST_STEP_PX = 16  # largest distance of the pixels of a large image that are read
CORNERS = 100
CORNER_QUALITY = 0.01  # share of the best corner's score
CORNER_DISTANCE_PX = 8  # of the small image
# Corners that were found again are followed on, in place of new ones: at least so many, for so many images.
LEAST_CARRIED, MOST_CARRIED_IMAGES = 60, 5
FLOW_WINDOW_PX, FLOW_LEVELS = 11, 3
FLOW_STOP = (cv2.TERM_CRITERIA_COUNT | cv2.TERM_CRITERIA_EPS, 20, 0.03)  # steps, px: far below `INLIER_PX`
INLIER_PX = 1.0  # of the small image
LEAST_INLIERS = 12
LEAST_INLIER_SHARE = 0.3
LEAST_SPREAD = 0.12  # standard deviation of the inliers, in image sides, along both axes
MOST_KEPT_SHIFT = 1.0  # of the image's longer side, between the kept image and the present one
TARGET_MARGIN = 1.5  # sides of the excluded area around the target, in target sides


@dataclass
class _Kept:
    """The reduced image that later ones are registered with. ``targets``: boxes px, excluded from the
    features, which are detected when first needed."""

    grey: Grey
    size: tuple[int, int]
    targets: Sequence[Box]
    landmarks: Landmarks | None = None


@dataclass(frozen=True)
class _Registration:
    """The homography between two reduced images; the corners that moved by it, px [n, 1, 2] of the second."""

    matrix: Matrix
    corners: Corners


class ImageCameraMotion:
    """A `GuidedSource` that compares consecutive images, and the kept one by its features."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._previous: Grey | None = None
        self._size = (0, 0)
        self._carried: Corners = NO_CORNERS
        self._carried_images = 0
        self._present: Landmarks | None = None  # of the previous image, once needed

    def another(self) -> ImageCameraMotion:
        return ImageCameraMotion()

    def estimate(
        self, image: Image, stamp_ns: int, targets: Sequence[Box], guess: Matrix | None = None
    ) -> CameraMotion:
        try:
            small = _small_grey(image)
        except InputError as refusal:
            return CameraMotion(None, str(refusal))
        previous, size = self._previous, self._size
        self._previous, self._size, self._present = small, (image.width, image.height), None
        carried, self._carried = self._carried, NO_CORNERS
        if previous is None:
            return CameraMotion(None, "no previous image")
        if size != self._size:
            return CameraMotion(None, f"the image's size changed from {size} to {self._size}")
        scale = small.shape[1] / image.width
        if guess is not None:
            guess = _rescaled(guess, scale)
        allowed = _allowed_mask(targets, scale, previous.shape)
        carried = carried[_are_allowed(carried, allowed)]
        self._carried_images += 1
        found: _Registration | str = ""
        if len(carried) >= LEAST_CARRIED and self._carried_images <= MOST_CARRIED_IMAGES:
            found = _register(previous, small, carried, guess)
        if isinstance(found, str):
            self._carried_images = 0
            found = _register(previous, small, _detect_corners(previous, allowed), guess)
        if isinstance(found, str):
            return _camera_motion(found, scale, size)
        self._carried = found.corners
        return _camera_motion(found.matrix, scale, size)

    def keep(self, targets: Sequence[Box]) -> _Kept | None:
        return None if self._previous is None else _Kept(self._previous, self._size, targets)

    def since(self, kept: object) -> CameraMotion:
        present = self._previous
        if not isinstance(kept, _Kept) or present is None or kept.size != self._size:
            return CameraMotion(None, "no image of this size was kept")
        scale = present.shape[1] / self._size[0]
        if kept.landmarks is None:
            kept.landmarks = Landmarks.of(kept.grey, _allowed_mask(kept.targets, scale, kept.grey.shape))
        self._present = self._present or Landmarks.of(present)
        found = kept.landmarks.motion_to(self._present)
        return _camera_motion(found, scale, self._size, MOST_KEPT_SHIFT)


def _camera_motion(
    found: Matrix | str, scale: float, size: tuple[int, int], most_shift: float = MOST_SHIFT
) -> CameraMotion:
    """The answer for a homography of reduced images, ``scale`` times as large as those of ``size``."""
    if isinstance(found, str):
        return CameraMotion(None, f"camera motion unknown: {found}")
    matrix = _rescaled(found, 1 / scale)
    fault = rejection(matrix, *size, most_shift)
    return CameraMotion(None, f"camera motion refused: {fault}") if fault else CameraMotion(matrix)


def _rescaled(matrix: Matrix, scale: float) -> Matrix:
    """A homography between images for the same images ``scale`` times as large."""
    larger = np.diag([scale, scale, 1.0]) @ matrix @ np.diag([1 / scale, 1 / scale, 1.0])
    return np.asarray(larger / larger[2, 2], np.float64)


def _small_grey(image: Image) -> Grey:
    height = max(1, round(image.height * SMALL_WIDTH_PX / image.width))
    # Averaging all pixels of a large image would dominate the cost; a few of them are sufficient.
    step = min(max(1, image.width // (2 * SMALL_WIDTH_PX)), MOST_STEP_PX)
    grey = to_grey(image, row_step=step, column_step=step if image.width % step == 0 else 1)
    if image.width > SMALL_WIDTH_PX:
        return np.asarray(cv2.resize(grey, (SMALL_WIDTH_PX, height), interpolation=cv2.INTER_AREA), np.uint8)
    return grey.copy()  # it is kept, and may be a view of the image's bytes


def _allowed_mask(targets: Sequence[Box], scale: float, shape: tuple[int, ...]) -> Grey:
    """uint8 mask of a reduced image: 0 around the targets, 255 elsewhere."""
    allowed = np.full(shape, 255, np.uint8)
    for target in targets:
        size = np.array([target.width, target.height])
        centre = np.array([target.x, target.y]) + size / 2
        half = size * TARGET_MARGIN / 2
        x0, y0 = (np.maximum(centre - half, 0) * scale).astype(int)
        x1, y1 = (np.maximum(centre + half, 0) * scale).astype(int) + 1
        allowed[y0:y1, x0:x1] = 0
    return allowed


def _are_allowed(corners: Corners, allowed: Grey) -> NDArray[np.bool_]:
    """Which of the corners lie in the image, where ``allowed`` is not 0."""
    x, y = np.rint(corners[:, 0]).astype(int).T
    height, width = allowed.shape
    inside = (x >= 0) & (y >= 0) & (x < width) & (y < height)
    inside[inside] = allowed[y[inside], x[inside]] > 0
    return np.asarray(inside, np.bool_)


def _detect_corners(grey: Grey, allowed: Grey) -> Corners:
    corners = cv2.goodFeaturesToTrack(grey, CORNERS, CORNER_QUALITY, CORNER_DISTANCE_PX, mask=allowed)
    return NO_CORNERS if corners is None else np.asarray(corners, np.float32)


def _register(previous: Grey, present: Grey, start: Corners, guess: Matrix | None) -> _Registration | str:
    """The motion between two reduced images, looked for near ``guess`` first, or why there is none."""
    if len(start) < LEAST_INLIERS:
        return f"{len(start)} corners in the previous image (at least {LEAST_INLIERS})"
    found: _Registration | str = ""
    if guess is not None:
        near = cv2.perspectiveTransform(start, guess)
        found = _follow(previous, present, start, np.asarray(near, np.float32))
    if isinstance(found, str):
        found = _follow(previous, present, start, start)
    if isinstance(found, str):
        # A fast pan exceeds the range of the flow: start from the shift of the whole image.
        halves = [
            np.asarray(cv2.resize(one, None, fx=0.5, fy=0.5), np.float32) for one in (previous, present)
        ]
        (dx, dy), _ = cv2.phaseCorrelate(halves[0], halves[1])
        found = _follow(previous, present, start, start + np.array([2 * dx, 2 * dy], np.float32))
    return found


def _follow(previous: Grey, present: Grey, start: Corners, guess: Corners) -> _Registration | str:
    moved, found, _ = cv2.calcOpticalFlowPyrLK(
        previous,
        present,
        start,
        guess.copy(),
        winSize=(FLOW_WINDOW_PX, FLOW_WINDOW_PX),
        maxLevel=FLOW_LEVELS,
        criteria=FLOW_STOP,
        flags=cv2.OPTFLOW_USE_INITIAL_FLOW,
    )
    kept = found.ravel() == 1
    before, after = start[kept], moved[kept]
    if len(before) < LEAST_INLIERS:
        return f"{len(before)} corners were found again (at least {LEAST_INLIERS})"
    matrix, mask = cv2.findHomography(before, after, cv2.RANSAC, INLIER_PX, maxIters=200, confidence=0.99)
    together = np.zeros(len(before), np.bool_) if matrix is None else mask.ravel() == 1
    inliers = int(together.sum())
    if inliers < max(LEAST_INLIERS, LEAST_INLIER_SHARE * len(start)):
        return f"{inliers} of {len(start)} corners move together (at least {LEAST_INLIER_SHARE:.0%})"
    spread = before[together, 0].std(axis=0) / np.array(previous.shape[::-1])
    if spread.min() < LEAST_SPREAD:
        return f"the corners that move together fill only a part of the image (spread {spread.min():.2f})"
    return _Registration(np.asarray(matrix, np.float64), after[together])
