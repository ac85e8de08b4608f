"""How the picture moves when the camera turns: from the gimbal's attitude to a homography.

Turning by dR moves what is seen at pixel p0 to p1 ~ K dR K^-1 p0, whatever its distance. What the camera's
own travel adds (focal length x speed / distance, px/s) is not in it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.bearing import Intrinsics
from efftam_ros.core.errors import InputError
from efftam_ros.flight.angles import OPTICAL_TO_BODY, from_yaw_pitch, matrix, multiplied, normalised
from efftam_ros.flight.attitude import VehicleHistory
from efftam_ros.flight.attitude_motion import AttitudeMotion
from efftam_ros.flight.values import NS, AttitudeSample, VehicleSample, YawFrame


def edge_matrix(intrinsics: Intrinsics) -> NDArray[np.float64]:
    """K [3, 3] px for edge coordinates: a pixel's centre lies at i + 0.5."""
    return np.array(
        [
            [intrinsics.fx, intrinsics.skew, intrinsics.cx + 0.5],
            [0.0, intrinsics.fy, intrinsics.cy + 0.5],
            [0.0, 0.0, 1.0],
        ]
    )


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
