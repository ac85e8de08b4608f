"""Estimates the camera's motion from the images.

For consecutive images, corners are followed by pyramidal Lucas-Kanade flow in a reduced grey image, and
RANSAC fits a homography, as in many trackers (for instance BoT-SORT, arXiv 2206.14651, section 3.2). For two
images with any time between them, SIFT features are matched instead (Lowe, IJCV 2004).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_ros.core.motion import Matrix
from efftam_ros.core.types import CameraMotion, Image
from efftam_ros.images.pixels import Region, to_grey

# Largest number of SIFT features per image. SIFT takes 21 to 26 ms for an aerial image, and ORB only 3 to 5
# ms. But in small images ORB found the motion of traffic instead of the background's, or none.
FEATURES = 300
CONTRAST = 0.02  # SIFT's contrast threshold: half of Lowe's, because aerial images are hazy
RATIO = 0.8  # largest ratio of the best match's distance to the second-best's (Lowe, section 7.1)
MIN_MATCHES = 14  # least number of matches that agree with one homography
MIN_SHARE = 0.3  # least share of the matches that agree with the homography
MATCH_PX = 2.0  # largest distance of a match from the homography's prediction, px of the reduced image
# Least standard deviation of the agreeing matches along both axes, as a share of the image's side.
MIN_MATCH_SPREAD = 0.1


@dataclass(frozen=True)
class Landmarks:
    """SIFT features of a grey image.

    ``size``: width and height, px; ``points``: x and y, px, float32 [N, 2]; ``descriptors``: float32 [N,
    128].
    """

    size: tuple[int, int]
    points: NDArray[np.float32]
    descriptors: NDArray[np.float32]

    @classmethod
    def of(cls, grey: NDArray[np.uint8], allowed: NDArray[np.uint8] | None = None) -> Landmarks:
        """Detect the features of the image ``grey``, uint8 [H, W].

        ``allowed``: mask uint8 [H, W]; features are detected only where it is not 0. None: everywhere.
        """
        cv: Any = cv2  # the type hints of OpenCV 4.5 lack SIFT
        points, descriptors = cv.SIFT_create(FEATURES, contrastThreshold=CONTRAST).detectAndCompute(
            grey, allowed
        )
        if descriptors is None:
            descriptors = np.zeros((0, 128), np.float32)
        where = np.array([p.pt for p in points], np.float32).reshape(-1, 2)
        return cls((grey.shape[1], grey.shape[0]), where, np.asarray(descriptors, np.float32))

    def motion_to(self, other: Landmarks) -> Matrix | str:
        """Return the homography from this image's px to those of ``other``, float64 [3, 3], or the reason why
        none was found."""
        count = min(len(self.points), len(other.points))
        if count < MIN_MATCHES:
            return f"{count} features were detected, at least {MIN_MATCHES} are needed"
        pairs = cv2.BFMatcher(cv2.NORM_L2).knnMatch(self.descriptors, other.descriptors, k=2)
        clear = [best for best, second in pairs if best.distance < RATIO * second.distance]
        if len(clear) < MIN_MATCHES:
            return f"{len(clear)} features were recognised, at least {MIN_MATCHES} are needed"
        before = self.points[[match.queryIdx for match in clear]]
        after = other.points[[match.trainIdx for match in clear]]
        matrix, mask = cv2.findHomography(before, after, cv2.RANSAC, MATCH_PX, maxIters=500, confidence=0.99)
        agreeing = 0 if matrix is None else int(mask.sum())
        if agreeing < max(MIN_MATCHES, MIN_SHARE * len(clear)):
            return f"{agreeing} of {len(clear)} recognised features agree, at least {MIN_SHARE:.0%} must"
        spread = before[mask.ravel() == 1].std(axis=0) / np.array(self.size)
        if spread.min() < MIN_MATCH_SPREAD:
            share = f"spread {spread.min():.2f}, at least {MIN_MATCH_SPREAD} is needed"
            return f"the features that agree fill only a part of the image ({share})"
        return np.asarray(matrix, np.float64)


Grey = NDArray[np.uint8]
Corners = NDArray[np.float32]

NO_CORNERS: Corners = np.zeros((0, 1, 2), np.float32)
SMALL_WIDTH_PX = 320  # width of the reduced image
MAX_STEP_PX = 16  # of a large image, at least every 16th pixel of a row or column is read
CORNERS = 100  # most corners that are detected in a reduced image
CORNER_QUALITY = 0.01  # least score of a corner, as a share of the best corner's score
CORNER_DISTANCE_PX = 8  # least distance of two corners, px of the reduced image
# The corners of the previous image are followed further if at least MIN_CARRIED are left, through at most
# MAX_CARRIED_IMAGES images. Otherwise new corners are detected.
MIN_CARRIED, MAX_CARRIED_IMAGES = 60, 5
FLOW_WINDOW_PX, FLOW_LEVELS = 11, 3
# The flow iterates at most 20 times, or until a step is below 0.03 px, which is far below `INLIER_PX`.
FLOW_STOP = (cv2.TERM_CRITERIA_COUNT | cv2.TERM_CRITERIA_EPS, 20, 0.03)
INLIER_PX = 1.0  # largest distance of a corner from the homography's prediction, px of the reduced image
MIN_INLIERS = 12  # least number of corners that agree with the homography
MIN_INLIER_SHARE = 0.3  # least share of the corners that agree with the homography
# Least standard deviation of the agreeing corners along both axes, as a share of the image's side.
MIN_SPREAD = 0.12
# Largest shift between a kept image and the present image, as a share of the image's longer side.
MAX_KEPT_SHIFT = 1.0
# Largest shift between consecutive images, as a share of the image's longer side. With a larger shift two
# images hardly overlap.
MAX_SHIFT = 0.6
MAX_ZOOM = 1.6  # largest factor by which the image may grow or shrink from one image to the next
MAX_PERSPECTIVE = 1.5  # largest ratio of the zooms at two places of the image
TARGET_MARGIN = 1.5  # width and height of the excluded area around a target, divided by those of the target


@dataclass
class _Kept:
    """A reduced image that later images are registered with.

    ``size``: width and height of the full image, px; ``targets``: boxes in the full image, px, where no
    features are detected; ``landmarks``: the features, None until they are needed.
    """

    grey: Grey
    size: tuple[int, int]
    targets: Sequence[Box]
    landmarks: Landmarks | None = None


@dataclass(frozen=True)
class _Registration:
    """The motion between two images.

    ``corners``: the corners that moved as the motion predicts, float32 [n, 1, 2], px of the second image
    after its reduction.
    """

    motion: CameraMotion
    corners: Corners


class _Previous(NamedTuple):
    """The previous image, reduced.

    ``size``: width and height of the full image, px; ``corners``: the corners that were followed to this
    image, px of the reduced image; ``images``: how many images they were followed through.
    """

    grey: Grey
    size: tuple[int, int]
    corners: Corners = NO_CORNERS
    images: int = 0

    def follows(self, corners: Corners) -> bool:
        """Return whether ``corners``, a part of this image's corners, are followed into the next image. If
        not, new corners are detected."""
        return len(corners) >= MIN_CARRIED and self.images < MAX_CARRIED_IMAGES


class _Ahead(NamedTuple):
    """What the worker thread computes for an image before `estimate` is called with it.

    ``image``: the image; ``previous``: the image before; ``found``: the reduced image, and its registration
    with ``previous`` by all corners of ``previous``. If there is no registration, a text with the reason
    stands in its place. The text is empty if no registration was tried.
    """

    image: Image
    previous: _Previous | None
    found: Future[tuple[Grey, _Registration | str]]


class ImageCameraMotion:
    """A `CameraMotionSource` that compares consecutive images by corners, and distant ones by SIFT features.

    Only one thread may call `estimate`, `keep`, `since` and `reset`. An image that was announced by
    `prefetch` is compared in a worker thread, while the image before is still being processed. This does not
    change the results.
    """

    def __init__(self, looks_ahead: bool = True) -> None:
        """Start a source without a previous image.

        ``looks_ahead``: whether `prefetch` uses a worker thread. False is right where the tracker's network
        runs on the CPU, because computing ahead saves no time there.
        """
        self._looks_ahead = looks_ahead
        self._worker = ThreadPoolExecutor(1, "camera_motion")
        self.reset()

    def reset(self) -> None:
        # A `_Previous` is never changed, only replaced, because the worker thread reads it.
        self._previous: _Previous | None = None
        self._ahead: _Ahead | None = None
        self._present: Landmarks | None = None  # features of the image in `_previous`; None until needed

    def another(self) -> ImageCameraMotion:
        return ImageCameraMotion(self._looks_ahead)

    def prefetch(self, image: Image) -> None:
        ahead, previous = self._ahead, self._previous
        if not self._looks_ahead:
            return
        # Only one image is computed ahead at a time: images that `estimate` later skips must not queue up.
        if ahead is None or ahead.found.done():
            self._ahead = _Ahead(image, previous, self._worker.submit(_look_ahead, image, previous))

    def estimate(self, image: Image, stamp_ns: int, targets: Sequence[Box]) -> CameraMotion:
        ahead, previous, size = self._ahead, self._previous, (image.width, image.height)
        found: _Registration | str = ""
        try:
            if ahead is not None and ahead.image is image:
                small, found = ahead.found.result()
            else:
                ahead, small = None, _small_grey(image)
        except InputError as refusal:
            return CameraMotion(None, str(refusal))
        self._present = None
        if previous is None or previous.size != size:
            self._previous = _Previous(small, size)
            changed = previous and f"the image's size changed from {previous.size} to {size}"
            return CameraMotion(None, changed or "no previous image")
        scale = small.shape[1] / image.width
        # Corners on a target move with the target. They would be taken for points of the background.
        known, images = _are_allowed(previous.corners, targets, scale), previous.images + 1
        corners = previous.corners[known]
        if not previous.follows(corners):
            found = ""
        elif ahead is None or ahead.previous is not previous or not known.all():
            found = _register(previous, small, corners)
        # Too few corners could be followed. Detect new ones in the previous image, and try once more.
        if isinstance(found, str):
            images, allowed = 0, _allowed_mask(targets, scale, small.shape)
            found = _register(previous, small, _detect_corners(previous.grey, allowed))
        if isinstance(found, str):
            self._previous = _Previous(small, size)
            return CameraMotion(None, f"camera motion unknown: {found}")
        self._previous = _Previous(small, size, found.corners, images)
        return found.motion

    def keep(self, targets: Sequence[Box]) -> _Kept | None:
        return None if self._previous is None else _Kept(*self._previous[:2], targets)

    def since(self, kept: object) -> CameraMotion:
        present = self._previous
        if not isinstance(kept, _Kept) or present is None or kept.size != present.size:
            return CameraMotion(None, "no image of this size was kept")
        scale = kept.grey.shape[1] / kept.size[0]
        if kept.landmarks is None:
            kept.landmarks = Landmarks.of(kept.grey, _allowed_mask(kept.targets, scale, kept.grey.shape))
        self._present = self._present or Landmarks.of(present.grey)
        found = kept.landmarks.motion_to(self._present)
        if isinstance(found, str):
            return CameraMotion(None, f"camera motion unknown: {found}")
        return _camera_motion(found, scale, kept.size, MAX_KEPT_SHIFT)


def _look_ahead(image: Image, previous: _Previous | None) -> tuple[Grey, _Registration | str]:
    """Return the reduced image, and its registration with ``previous`` or the reason why there is none.

    The reason is empty if no registration was tried, because ``previous`` is None or has another size, or
    because its corners are not followed any further. Raises InputError for a bad image.
    """
    # With a region, `to_grey` does not store its result in the image. In an image that is never processed, a
    # stored result would only take memory.
    small = _small_grey(image, Region(0, 0, image.width, image.height))
    is_next = previous is not None and previous.size == (image.width, image.height)
    if previous is None or not is_next or not previous.follows(previous.corners):
        return small, ""
    return small, _register(previous, small, previous.corners)


def rejection(matrix: Matrix, width: int, height: int, most_shift: float = MAX_SHIFT) -> str:
    """Return why a homography can't be the camera's motion between two images; empty if it can.

    ``width``, ``height``: size of both images, px; ``most_shift``: largest shift of the image centre, as a
    share of the image's longer side.
    """
    if matrix.shape != (3, 3) or not np.isfinite(matrix).all() or abs(matrix[2, 2]) < 1e-9:
        return "the matrix is not a finite homography"
    # Plain Python numbers: numpy is slower for only five points.
    (a, b, c), (d, e, f), (g, h, i) = matrix.tolist()
    determinant = a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)
    x, y = width / 2, height / 2
    # The homography's third coordinate at the four corners of the image, and at its centre (last).
    depths = (i, g * width + i, g * width + h * height + i, h * height + i, g * x + h * y + i)
    if min(depths) * max(depths) <= 0 or min(map(abs, depths)) < 1e-9:
        return "the homography maps a part of the image to infinity"
    # At a point, the homography scales areas by det(H) / depth^3.
    changes = [determinant / (depth * depth * depth) for depth in depths]
    if min(changes) <= 0:
        return "the homography mirrors the image"
    zooms = list(map(math.sqrt, changes))
    if not 1 / MAX_ZOOM < zooms[4] < MAX_ZOOM:
        return f"the homography zooms by {zooms[4]:.2g}, at most {MAX_ZOOM:g} is allowed"
    if max(zooms) / min(zooms) > MAX_PERSPECTIVE:
        found = max(zooms) / min(zooms)
        return f"the homography's perspective changes by {found:.2g}, at most {MAX_PERSPECTIVE:g} is allowed"
    dx, dy = (a * x + b * y + c) / depths[4] - x, (d * x + e * y + f) / depths[4] - y
    shift = math.hypot(dx, dy) / max(width, height)
    if shift > most_shift:
        return f"the homography shifts by {shift:.2f} image sides, at most {most_shift:g} is allowed"
    return ""


def _camera_motion(
    found: Matrix, scale: float, size: tuple[int, int], most_shift: float = MAX_SHIFT
) -> CameraMotion:
    """Return the camera's motion for the homography ``found`` between two reduced images, or the reason why
    it is refused.

    ``size``: width and height of the full images, px; ``scale``: size of the reduced images divided by
    ``size``.
    """
    factor = 1 / scale
    larger = np.diag([factor, factor, 1.0]) @ found @ np.diag([1 / factor, 1 / factor, 1.0])
    matrix = np.asarray(larger / larger[2, 2], np.float64)
    fault = rejection(matrix, *size, most_shift)
    return CameraMotion(None, f"camera motion refused: {fault}") if fault else CameraMotion(matrix)


def _small_grey(image: Image, region: Region | None = None) -> Grey:
    """Return the image in grey, reduced to the width `SMALL_WIDTH_PX`, uint8 [h, w].

    ``region``: None, or the region of the whole image. With this region `to_grey` does not store its result
    in the image.
    """
    height = max(1, round(image.height * SMALL_WIDTH_PX / image.width))
    # To average all pixels of a large image would dominate the computing time. A part of the pixels suffices.
    step = min(max(1, image.width // (2 * SMALL_WIDTH_PX)), MAX_STEP_PX)
    grey = to_grey(image, region, step, step if image.width % step == 0 else 1)
    if image.width > SMALL_WIDTH_PX:
        return np.asarray(cv2.resize(grey, (SMALL_WIDTH_PX, height), interpolation=cv2.INTER_AREA), np.uint8)
    return grey.copy()  # a copy, because the result is kept, and `grey` may be a view of the image's bytes


def _excluded(targets: Sequence[Box], scale: float) -> list[tuple[int, int, int, int]]:
    """Return the area around each target in a reduced image, px: x0, x1, y0, y1.

    Column x1 and row y1 are not part of it.

    ``targets``: boxes in the full image, px; ``scale``: size of the reduced image divided by the full one's.
    """
    areas = []
    for target in targets:
        size = np.array([target.width, target.height])
        centre = np.array([target.x, target.y]) + size / 2
        half = size * TARGET_MARGIN / 2
        x0, y0 = (np.maximum(centre - half, 0) * scale).astype(int).tolist()
        x1, y1 = ((np.maximum(centre + half, 0) * scale).astype(int) + 1).tolist()
        areas.append((x0, x1, y0, y1))
    return areas


def _allowed_mask(targets: Sequence[Box], scale: float, shape: tuple[int, ...]) -> Grey:
    """Return a mask for a reduced image, uint8 of the given ``shape``: 0 around the targets, 255 elsewhere.

    ``targets``, ``scale``: see `_excluded`.
    """
    allowed = np.full(shape, 255, np.uint8)
    for x0, x1, y0, y1 in _excluded(targets, scale):
        allowed[y0:y1, x0:x1] = 0
    return allowed


def _are_allowed(corners: Corners, targets: Sequence[Box], scale: float) -> NDArray[np.bool_]:
    """Return for each corner whether it lies outside the areas around the targets, bool [n].

    ``corners``: px of the reduced image; ``targets``, ``scale``: see `_excluded`.
    """
    x, y = np.rint(corners[:, 0]).T
    kept = np.ones(len(corners), np.bool_)
    for x0, x1, y0, y1 in _excluded(targets, scale):
        kept &= (x < x0) | (x >= x1) | (y < y0) | (y >= y1)
    return kept


def _detect_corners(grey: Grey, allowed: Grey) -> Corners:
    corners = cv2.goodFeaturesToTrack(grey, CORNERS, CORNER_QUALITY, CORNER_DISTANCE_PX, mask=allowed)
    return NO_CORNERS if corners is None else np.asarray(corners, np.float32)


def _register(previous: _Previous, present: Grey, start: Corners) -> _Registration | str:
    """Return the motion from ``previous`` to the reduced image ``present``, or the reason why none was found.

    ``start``: the corners in ``previous`` that are followed, px of the reduced image.
    """
    if len(start) < MIN_INLIERS:
        return f"{len(start)} corners were found in the previous image, at least {MIN_INLIERS} are needed"
    scale = present.shape[1] / previous.size[0]
    found = _follow(previous.grey, present, start, start)
    if isinstance(found, str):
        # After a fast pan the corners are beyond the range of the flow. Try again from the shift of the whole
        # image, which phase correlation finds.
        both = (previous.grey, present)
        halves = [np.asarray(cv2.resize(one, None, fx=0.5, fy=0.5), np.float32) for one in both]
        (dx, dy), _ = cv2.phaseCorrelate(halves[0], halves[1])
        found = _follow(previous.grey, present, start, start + np.array([2 * dx, 2 * dy], np.float32))
    if isinstance(found, str):
        return found
    (matrix, corners), (height, width) = found, present.shape
    x, y = np.rint(corners[:, 0]).T
    inside = (x >= 0) & (y >= 0) & (x < width) & (y < height)
    return _Registration(_camera_motion(matrix, scale, previous.size), corners[inside])


def _follow(previous: Grey, present: Grey, start: Corners, guess: Corners) -> tuple[Matrix, Corners] | str:
    """Return the homography between two reduced images and the corners that agree with it, or why there is
    none.

    ``start``: corners in ``previous``; ``guess``: where they are expected in ``present``. The returned
    corners are px of ``present``.
    """
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
    if len(before) < MIN_INLIERS:
        return f"{len(before)} corners were found again, at least {MIN_INLIERS} are needed"
    matrix, mask = cv2.findHomography(before, after, cv2.RANSAC, INLIER_PX, maxIters=200, confidence=0.99)
    together = np.zeros(len(before), np.bool_) if matrix is None else mask.ravel() == 1
    inliers = int(together.sum())
    if inliers < max(MIN_INLIERS, MIN_INLIER_SHARE * len(start)):
        return f"{inliers} of {len(start)} corners move together, at least {MIN_INLIER_SHARE:.0%} must"
    # If all agreeing corners lie in one part of the image, the homography is uncertain elsewhere.
    spread = before[together, 0].std(axis=0) / np.array(previous.shape[::-1])
    if spread.min() < MIN_SPREAD:
        share = f"spread {spread.min():.2f}, at least {MIN_SPREAD} is needed"
        return f"the corners that move together fill only a part of the image ({share})"
    return np.asarray(matrix, np.float64), after[together]
