"""Registers an image with an earlier one over large motions: SIFT features, matching and RANSAC.

Lowe, Distinctive image features from scale-invariant keypoints, IJCV 2004.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.motion import Matrix

# SIFT takes 21 to 26 ms on aerial images where ORB takes 3 to 5, but ORB registered moving traffic, or
# nothing, on small images.
FEATURES = 300
CONTRAST = 0.02  # half of Lowe's: aerial images are hazy
RATIO = 0.8  # of the distances of the best and the second-best match (Lowe, 7.1)
LEAST_MATCHES = 14  # that agree with one homography
LEAST_SHARE = 0.3  # of the matches
INLIER_PX = 2.0
LEAST_SPREAD = 0.1  # standard deviation of the agreeing matches, in image sides, along both axes


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
        matrix, mask = cv2.findHomography(before, after, cv2.RANSAC, INLIER_PX, maxIters=500, confidence=0.99)
        agreeing = 0 if matrix is None else int(mask.sum())
        if agreeing < max(LEAST_MATCHES, LEAST_SHARE * len(clear)):
            return f"{agreeing} of {len(clear)} recognised features agree (at least {LEAST_SHARE:.0%})"
        spread = before[mask.ravel() == 1].std(axis=0) / np.array(self.size)
        if spread.min() < LEAST_SPREAD:
            return f"the features that agree fill only a part of the image (spread {spread.min():.2f})"
        return np.asarray(matrix, np.float64)
