"""How the picture moves when the camera turns: from the gimbal's attitude or a gyro to a homography.

Turning by dR moves what is seen at pixel p0 to p1 ~ K dR K^-1 p0, whatever its distance. What the camera's
own travel adds (focal length x speed / distance, px/s) is not in it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.attitude_motion import AttitudeMotion
from efftam_ros.core.bearing import Intrinsics
from efftam_ros.core.errors import InputError
from efftam_ros.core.motion import rotation_motion
from efftam_ros.flight.angles import OPTICAL_TO_BODY, from_yaw_pitch, matrix, multiplied, normalised
from efftam_ros.flight.attitude import VehicleHistory
from efftam_ros.flight.values import NS, AttitudeSample, Quaternion, VehicleSample, YawFrame


def rotation_homography(before: Quaternion, after: Quaternion, intrinsics: Intrinsics) -> NDArray[np.float64]:
    """Where the pixels of one image lie in another, after the camera turned.

    Args:
        before, after: attitudes at the two images, both from the same frame.
        intrinsics: of both images. Lens distortion is left out: rectify the images of a wide lens.

    Returns:
        float64 [3, 3], with 1 in its last place: [u1, v1, 1] ~ H [u0, v0, 1] in px, edge coordinates (a
        pixel's centre lies at i + 0.5).
    """
    turned = (matrix(after) @ OPTICAL_TO_BODY).T @ (matrix(before) @ OPTICAL_TO_BODY)
    return rotation_motion(edge_matrix(intrinsics), turned)


def edge_matrix(intrinsics: Intrinsics) -> NDArray[np.float64]:
    """K [3, 3] px for edge coordinates: a pixel's centre lies at i + 0.5."""
    return np.array(
        [
            [intrinsics.fx, intrinsics.skew, intrinsics.cx + 0.5],
            [0.0, intrinsics.fy, intrinsics.cy + 0.5],
            [0.0, 0.0, 1.0],
        ]
    )


class GyroAttitude:
    """Integrates a gyro's rates to an attitude, from wherever it started.

    Rates are about forward, right and down of the camera, rad/s.
    """

    def __init__(self) -> None:
        self._q: Quaternion = (1.0, 0.0, 0.0, 0.0)
        self._last: tuple[int, tuple[float, float, float]] | None = None

    def add(self, stamp_ns: int, rates: tuple[float, float, float]) -> AttitudeSample | None:
        """The attitude after one more sample; None when it is not finite or not later than the last one. A
        pause of more than 0.1 s, or a stamp that goes back, starts over."""
        if not all(map(math.isfinite, rates)):
            return None
        last, self._last = self._last, (stamp_ns, rates)
        if last is not None:
            dt = (stamp_ns - last[0]) / NS
            if dt == 0.0:
                return None
            if 0.0 < dt <= 0.1:
                mean = [(a + b) / 2 for a, b in zip(last[1], rates, strict=True)]
                angle = dt * math.sqrt(sum(r * r for r in mean))
                scale = dt / 2 * (math.sin(angle / 2) / (angle / 2) if angle > 1e-9 else 1.0)
                step = (math.cos(angle / 2), mean[0] * scale, mean[1] * scale, mean[2] * scale)
                self._q = multiplied(self._q, step)
            else:
                self._q = (1.0, 0.0, 0.0, 0.0)
        return AttitudeSample(stamp_ns, self._q, YawFrame.EARTH)


class CameraAttitude:
    """Hands the gimbal's attitudes to the tracker's `AttitudeMotion`."""

    def __init__(self, motion: AttitudeMotion, offset_s: float = 0.0) -> None:
        """``offset_s``: added to the stamps of attitudes and headings, s."""
        self._motion, self._offset_ns = motion, round(offset_s * NS)
        self._vehicle = VehicleHistory()

    def set_camera(self, intrinsics: Intrinsics | None) -> None:
        """The images' calibration; None: there is none."""
        self._motion.set_intrinsics(None if intrinsics is None else edge_matrix(intrinsics))

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
        self._motion.add(sample.stamp_ns + self._offset_ns, (matrix(q) @ OPTICAL_TO_BODY).T)

    def add_vehicle(self, sample: VehicleSample) -> None:
        """The vehicle's heading. Raises InputError when it is not finite."""
        if not self._vehicle.add(sample):
            raise InputError(
                f"yaw is {sample.yaw} rad, its rate {sample.yaw_rate} rad/s; both must be finite"
            )
