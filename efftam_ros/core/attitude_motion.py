"""Camera motion from the camera's attitude (gyro or gimbal) and its intrinsics.

A rotation moves pixels equally at every distance, so no image features are needed. The vehicle's translation
between two images is not included.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.camera_motion import (
    CameraMotionSource,
    Matrix,
    moved_point,
    rejection,
    rotation_motion,
)
from efftam_ros.core.geometry import Box
from efftam_ros.core.types import CameraMotion, Image

KEPT_SAMPLES = 2000
MOST_APART_S = 0.1  # largest time from an image's stamp to the nearest sample
COMPARED_IMAGES = 10
LEAST_SHIFT_PX = 3.0  # least shift of the image centre that is compared
MOST_DIFFERENCE = 0.5  # largest difference of two shifts, as a share of the larger


class AttitudeMotion:
    """A `CameraMotionSource` computed from samples of the camera's attitude."""

    def __init__(self, intrinsics: Matrix) -> None:
        """``intrinsics``: K [3, 3], px, of the images given to the tracker."""
        self._intrinsics = np.asarray(intrinsics, np.float64)
        self._samples: deque[tuple[int, NDArray[np.float64]]] = deque(maxlen=KEPT_SAMPLES)
        self.reset()

    def reset(self) -> None:
        self._previous: NDArray[np.float64] | None = None

    def add(self, stamp_ns: int, rotation: NDArray[np.float64]) -> None:
        """Add an attitude sample. Samples that are not newer than the last one are ignored.

        Args:
            stamp_ns: Time of the sample, on the clock of the image stamps.
            rotation: [3, 3], maps directions in a fixed frame to the camera's optical frame (x right, y down,
                z forward).
        """
        if not self._samples or stamp_ns > self._samples[-1][0]:
            self._samples.append((stamp_ns, np.asarray(rotation, np.float64)))

    def estimate(self, image: Image, stamp_ns: int, target: Box | None) -> CameraMotion:
        previous = self._previous
        self._previous = present = self._at(stamp_ns)
        if present is None:
            return CameraMotion(None, self._gap(stamp_ns))
        if previous is None:
            return CameraMotion(None, "no attitude for the previous image")
        matrix = rotation_motion(self._intrinsics, present @ previous.T)
        fault = rejection(matrix, image.width, image.height)
        return CameraMotion(None, f"attitude refused: {fault}") if fault else CameraMotion(matrix)

    def _at(self, stamp_ns: int) -> NDArray[np.float64] | None:
        """The attitude at a stamp, interpolated between its neighbours; None if no sample is near."""
        before = [s for s in self._samples if s[0] <= stamp_ns][-1:]
        after = [s for s in self._samples if s[0] >= stamp_ns][:1]
        near = [s for s in before + after if abs(s[0] - stamp_ns) * 1e-9 <= MOST_APART_S]
        if not near:
            return None
        if len(near) == 1 or near[0][0] == near[1][0]:
            return near[0][1]
        (t0, r0), (t1, r1) = near
        return _turned(r1 @ r0.T, (stamp_ns - t0) / (t1 - t0)) @ r0

    def _gap(self, stamp_ns: int) -> str:
        if not self._samples:
            return "no attitude was received; check the topic, or set camera_motion to auto"
        apart = min((s[0] - stamp_ns for s in self._samples), key=abs) * 1e-9
        return (
            f"the nearest attitude is {apart:+.2f} s from the image's stamp (at most {MOST_APART_S:g} s): "
            "check that both use the same clock"
        )


class ComparedMotion:
    """A source checked against a second one: while the two disagree for long, its motion is rejected."""

    def __init__(self, source: CameraMotionSource, witness: CameraMotionSource) -> None:
        self._source, self._witness = source, witness
        self._shifts: deque[tuple[NDArray[np.float64], NDArray[np.float64]]] = deque(maxlen=COMPARED_IMAGES)

    def reset(self) -> None:
        self._source.reset()
        self._witness.reset()

    def estimate(self, image: Image, stamp_ns: int, target: Box | None) -> CameraMotion:
        told = self._source.estimate(image, stamp_ns, target)
        seen = self._witness.estimate(image, stamp_ns, target)
        if told.matrix is None or seen.matrix is None:
            return told
        centre = np.array([image.width, image.height]) / 2
        told_shift, seen_shift = (moved_point(m, *centre) - centre for m in (told.matrix, seen.matrix))
        if max(np.hypot(*told_shift), np.hypot(*seen_shift)) >= LEAST_SHIFT_PX:
            self._shifts.append((told_shift, seen_shift))
        fault = self._disagreement()
        return CameraMotion(None, fault) if fault else told

    def _disagreement(self) -> str:
        """Describe the disagreement if the two differ in most of the last images; empty if they agree."""
        if len(self._shifts) < COMPARED_IMAGES:
            return ""
        apart = [np.hypot(*(a - b)) / max(np.hypot(*a), np.hypot(*b)) for a, b in self._shifts]
        if float(np.median(apart)) <= MOST_DIFFERENCE:
            return ""
        told, seen = (np.mean([pair[i] for pair in self._shifts], axis=0) for i in (0, 1))
        return (
            f"the attitude moves the image by ({told[0]:.0f}, {told[1]:.0f}) px, but the images show "
            f"({seen[0]:.0f}, {seen[1]:.0f}): check its axes and its clock, or set camera_motion to auto"
        )


def _turned(rotation: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    """A share 0..1 of a rotation [3, 3] about its own axis (Rodrigues)."""
    angle = float(np.arccos(np.clip((np.trace(rotation) - 1) / 2, -1.0, 1.0)))
    if angle < 1e-9:
        return np.eye(3)
    skew = (rotation - rotation.T) / (2 * np.sin(angle))
    return np.asarray(
        np.eye(3) + np.sin(share * angle) * skew + (1 - np.cos(share * angle)) * skew @ skew, float
    )
