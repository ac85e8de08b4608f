"""The camera's motion from its attitude (of a gyro or a gimbal) and its intrinsics.

A rotation moves the pixels of all distances alike, so that no features in the image are needed. It does not
contain the translation of the vehicle between two images: `GuidedMotion` adds the motion from the images.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from copy import copy

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.bearing import Intrinsics
from efftam_ros.core.contract import CameraMotionSource, GuidedSource
from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_ros.core.motion import MOST_SHIFT, Matrix, moved_point, rejection, rotation_motion
from efftam_ros.core.types import CameraMotion, Image
from efftam_ros.flight.angles import OPTICAL_TO_BODY, from_yaw_pitch, matrix, multiplied, normalised
from efftam_ros.flight.attitude import VehicleHistory
from efftam_ros.flight.values import NS, AttitudeSample, VehicleSample, YawFrame

Sample = tuple[int, NDArray[np.float64]]

KEPT_SAMPLES = 2000
RATE_SPAN_NS = 15_000_000
MOST_APART_S = 0.1  # from an image's stamp to the nearest sample
MOST_AHEAD_S = 0.05  # from the newest sample to an image's stamp: a gimbal does not keep its rate for longer
COMPARED_IMAGES = 10
MOST_KEPT_SHIFT = 3.0  # image sides: beyond it, the kept place is far outside the image
LEAST_SHIFT_PX = 3.0  # shift of the image's centre by the attitude from which the two sources are compared
# Largest difference of the two sources' shifts, as a share of the larger one. Wrong axes give 1.4, a wrong
# sign 2. A camera that travels and turns to keep a place in the image's middle gives 1: the images stand
# still while the attitude turns.
MOST_DIFFERENCE = 1.2


class AttitudeMotion:
    """A `CameraMotionSource` fed with the camera's attitude. One thread may feed it while another asks."""

    def __init__(self, intrinsics: Matrix | None = None) -> None:
        """``intrinsics``: as for `set_intrinsics`."""
        self._lock = threading.Lock()
        self._intrinsics = intrinsics
        self._samples: deque[Sample] = deque(maxlen=KEPT_SAMPLES)
        self.reset()

    def reset(self) -> None:
        self._previous: NDArray[np.float64] | None = None
        self._size = (0, 0)

    def another(self) -> AttitudeMotion:
        made = copy(self)  # samples and lock are the same
        made.reset()
        return made

    def set_intrinsics(self, intrinsics: Matrix | None) -> None:
        """K [3, 3] px of the images as the tracker gets them, in edge coordinates (a pixel's centre lies at
        i + 0.5); None: not known."""
        self._intrinsics = None if intrinsics is None else np.asarray(intrinsics, np.float64)

    def add(self, stamp_ns: int, rotation: NDArray[np.float64]) -> None:
        """Add a sample. ``rotation``: [3, 3], from a fixed frame to the camera's optical frame (x right, y
        down, z forward); ``stamp_ns``: its time on the images' clock.

        A sample older than the newest is ignored; beyond `MOST_APART_S` it replaces all (the clock was
        set)."""
        with self._lock:
            newest_ns = self._samples[-1][0] if self._samples else stamp_ns - 1
            if (newest_ns - stamp_ns) * 1e-9 > MOST_APART_S:
                self._samples.clear()
            elif stamp_ns <= newest_ns:
                return
            self._samples.append((stamp_ns, np.asarray(rotation, np.float64)))

    def prefetch(self, image: Image) -> None:
        return

    def estimate(self, image: Image, stamp_ns: int, targets: Sequence[Box]) -> CameraMotion:
        previous, self._size = self._previous, (image.width, image.height)
        with self._lock:
            self._previous = present = self._at(stamp_ns)
            missing = "" if present is not None else self._gap(stamp_ns)
        if present is None:
            return CameraMotion(None, missing)
        return self._motion(previous, present, "previous", MOST_SHIFT)

    def keep(self, targets: Sequence[Box]) -> NDArray[np.float64] | None:
        return self._previous

    def since(self, kept: object) -> CameraMotion:
        if self._previous is None:
            return CameraMotion(None, "no attitude for the image")
        before = kept if isinstance(kept, np.ndarray) else None
        return self._motion(before, self._previous, "kept", MOST_KEPT_SHIFT)

    def _motion(
        self,
        before: NDArray[np.float64] | None,
        after: NDArray[np.float64],
        name: str,
        most_shift: float,
    ) -> CameraMotion:
        """The motion between two attitudes. ``name``: what to call the first one's image."""
        if self._intrinsics is None:
            return CameraMotion(None, "no calibration: the attitude needs camera_info to move pixels")
        if before is None:
            return CameraMotion(None, f"no attitude for the {name} image")
        matrix = rotation_motion(self._intrinsics, after @ before.T)
        fault = rejection(matrix, *self._size, most_shift)
        return CameraMotion(None, f"attitude refused: {fault}") if fault else CameraMotion(matrix)

    def _at(self, stamp_ns: int) -> NDArray[np.float64] | None:
        """The attitude at a stamp, between the samples beside it or shortly after the newest; None where none
        is near."""
        after = None
        for sample in reversed(self._samples):
            if sample[0] <= stamp_ns:
                return self._between(sample, after, stamp_ns)
            after = sample
        # Older than all samples.
        return None if after is None or _apart_s(after, stamp_ns) > MOST_APART_S else after[1]

    def _between(self, before: Sample, after: Sample | None, stamp_ns: int) -> NDArray[np.float64] | None:
        if after is None:
            after, before = before, self._rate_base()
            if _apart_s(after, stamp_ns) > MOST_AHEAD_S:
                return None
        if min(_apart_s(before, stamp_ns), _apart_s(after, stamp_ns)) > MOST_APART_S:
            return None
        if before[0] == after[0]:
            return after[1]
        share = (stamp_ns - before[0]) / (after[0] - before[0])
        return _turned(after[1] @ before[1].T, share) @ before[1]

    def _rate_base(self) -> Sample:
        """The sample from which the present rate is computed: at least `RATE_SPAN_NS` before the newest,
        because stamps are rounded; the newest itself when no other is near."""
        newest = self._samples[-1]
        for sample in reversed(self._samples):
            if newest[0] - sample[0] >= RATE_SPAN_NS:
                return sample if _apart_s(sample, newest[0]) <= MOST_APART_S else newest
        return newest

    def _gap(self, stamp_ns: int) -> str:
        if not self._samples:
            return "no attitude was received; check the topic, or set camera_motion to auto"
        apart = min((s[0] - stamp_ns for s in self._samples), key=abs) * 1e-9
        most = MOST_AHEAD_S if stamp_ns > self._samples[-1][0] else MOST_APART_S
        return (
            f"the nearest attitude is {apart:+.2f} s from the image's stamp (at most {most:g} s): "
            "do both use one clock, and is the attitude not late?"
        )


class CameraAttitude(AttitudeMotion):
    """The same, fed with messages of a gimbal: turning by dR moves what is seen at pixel p0 to
    p1 ~ K dR K^-1 p0, whatever its distance. ``offset_s``: added to the stamps of attitudes and headings."""

    def __init__(self, offset_s: float = 0.0) -> None:
        super().__init__()
        self._offset_ns, self._vehicle = round(offset_s * NS), VehicleHistory()

    def set_camera(self, lens: Intrinsics | None) -> None:
        """The images' calibration; None: there is none."""
        # In edge coordinates.
        rows = lens and ((lens.fx, lens.skew, lens.cx + 0.5), (0.0, lens.fy, lens.cy + 0.5), (0.0, 0.0, 1.0))
        self.set_intrinsics(None if rows is None else np.array(rows))

    def add_attitude(self, sample: AttitudeSample) -> None:
        """Raises InputError for a quaternion that is no rotation, and for one that turns with a vehicle whose
        heading is not known."""
        q = normalised(sample.q)
        if q is None:
            raise InputError(f"the quaternion {sample.q} is no rotation; its length must be 1")
        if sample.yaw_frame is YawFrame.VEHICLE:
            heading = self._vehicle.at(sample.stamp_ns)
            if heading is None:
                raise InputError(
                    "yaw counts from the vehicle's nose, and vehicle_heading tells no heading at its stamp;"
                    " publish that too, or attitudes from north (frame_id earth)"
                )
            q = multiplied(from_yaw_pitch(heading, 0.0), q)
        self.add(sample.stamp_ns + self._offset_ns, (matrix(q) @ OPTICAL_TO_BODY).T)

    def add_vehicle(self, sample: VehicleSample) -> None:
        """The vehicle's heading. Raises InputError when it is not finite."""
        if not self._vehicle.add(sample):
            raise InputError(
                f"yaw is {sample.yaw} rad, its rate {sample.yaw_rate} rad/s; both must be finite"
            )


class GuidedMotion:
    """A camera's motion from its attitude and its images together.

    The attitude tells where to look for the previous image's points, and replaces the images' motion where
    that is unknown. Elsewhere the images' motion is used, because it includes the camera's translation. An
    attitude that contradicts the images in most of the last ones is not used, with a reason."""

    def __init__(self, attitude: CameraMotionSource, images: GuidedSource) -> None:
        self._attitude, self._images = attitude, images
        self._shifts: deque[tuple[NDArray[np.float64], NDArray[np.float64]]] = deque(maxlen=COMPARED_IMAGES)

    def another(self) -> GuidedMotion:
        return GuidedMotion(self._attitude.another(), self._images.another())

    def reset(self) -> None:
        self._attitude.reset()
        self._images.reset()

    def prefetch(self, image: Image) -> None:
        """Nothing: where to look in the image is known with the attitude of its stamp."""

    def estimate(self, image: Image, stamp_ns: int, targets: Sequence[Box]) -> CameraMotion:
        by_attitude = self._attitude.estimate(image, stamp_ns, targets)
        by_images = self._images.estimate(image, stamp_ns, targets, by_attitude.matrix)
        if by_attitude.matrix is not None and by_images.matrix is not None:
            self._compare(by_attitude.matrix, by_images.matrix, np.array([image.width, image.height]) / 2)
        return self._combined(by_attitude, by_images)

    def keep(self, targets: Sequence[Box]) -> tuple[object, object]:
        return self._attitude.keep(targets), self._images.keep(targets)

    def since(self, kept: object) -> CameraMotion:
        by_attitude, by_images = kept if isinstance(kept, tuple) else (None, None)
        return self._combined(self._attitude.since(by_attitude), self._images.since(by_images))

    def _combined(self, by_attitude: CameraMotion, by_images: CameraMotion) -> CameraMotion:
        fault = by_attitude.reason or self._contradiction()
        if by_images.matrix is not None or fault:
            return CameraMotion(by_images.matrix, fault)
        return by_attitude

    def _compare(self, by_attitude: Matrix, by_images: Matrix, centre: NDArray[np.float64]) -> None:
        attitude_shift, image_shift = (
            moved_point(matrix, *centre) - centre for matrix in (by_attitude, by_images)
        )
        # Without a rotation the images may still move, because the camera travels: nothing to compare.
        if np.hypot(*attitude_shift) >= LEAST_SHIFT_PX:
            self._shifts.append((attitude_shift, image_shift))

    def _contradiction(self) -> str:
        """How attitude and images disagree in most of the last images; empty when they do not."""
        if len(self._shifts) < COMPARED_IMAGES:
            return ""
        apart = [np.hypot(*(a - b)) / max(np.hypot(*a), np.hypot(*b)) for a, b in self._shifts]
        if float(np.median(apart)) <= MOST_DIFFERENCE:
            return ""
        a, b = (np.mean([pair[i] for pair in self._shifts], axis=0) for i in (0, 1))
        return (
            f"the attitude moves the image by ({a[0]:.0f}, {a[1]:.0f}) px, the images show "
            f"({b[0]:.0f}, {b[1]:.0f}): are its axes or its clock wrong? camera_motion auto needs none"
        )


def _apart_s(sample: Sample, stamp_ns: int) -> float:
    return abs(sample[0] - stamp_ns) * 1e-9


def _turned(rotation: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    """A rotation [3, 3] with its angle multiplied by ``share`` (Rodrigues)."""
    angle = float(np.arccos(np.clip((np.trace(rotation) - 1) / 2, -1.0, 1.0)))
    if angle < 1e-9:
        return np.eye(3)
    skew = (rotation - rotation.T) / (2 * np.sin(angle))
    return np.asarray(
        np.eye(3) + np.sin(share * angle) * skew + (1 - np.cos(share * angle)) * skew @ skew, float
    )
