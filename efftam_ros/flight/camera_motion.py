"""How the picture moves when the camera turns: from the gimbal's attitude or a gyro to a homography.

Turning by dR moves what is seen at pixel p0 to p1 ~ K dR K^-1 p0, whatever its distance. What the camera's
own travel adds (focal length x speed / distance, px/s) is not in it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.bearing import Intrinsics
from efftam_ros.flight.angles import OPTICAL_TO_BODY, from_yaw_pitch, matrix, multiplied
from efftam_ros.flight.attitude import GimbalHistory, VehicleHistory
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
    k = np.array(
        [
            [intrinsics.fx, intrinsics.skew, intrinsics.cx + 0.5],
            [0.0, intrinsics.fy, intrinsics.cy + 0.5],
            [0.0, 0.0, 1.0],
        ]
    )
    turned = (matrix(after) @ OPTICAL_TO_BODY).T @ (matrix(before) @ OPTICAL_TO_BODY)
    h = k @ turned @ np.linalg.inv(k)
    scaled: NDArray[np.float64] = h / h[2, 2]
    return scaled


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


class AttitudeMotion:
    """The camera's turn between any two images of the last second."""

    def __init__(self, intrinsics: Intrinsics) -> None:
        self._intrinsics = intrinsics
        self._gimbal = GimbalHistory()
        self._vehicle = VehicleHistory()

    def set_intrinsics(self, intrinsics: Intrinsics) -> None:
        """Another calibration (zoom), from the next pair of images on."""
        self._intrinsics = intrinsics

    def add_attitude(self, sample: AttitudeSample) -> bool:
        """The gimbal's attitude; False when it is no rotation."""
        return self._gimbal.add(sample)

    def add_vehicle(self, sample: VehicleSample) -> bool:
        """The vehicle's heading, needed where the gimbal's yaw counts from the vehicle."""
        return self._vehicle.add(sample)

    def homography(self, from_ns: int, to_ns: int) -> NDArray[np.float64] | None:
        """As `rotation_homography`, from the image of one stamp to that of another; None when the attitude
        at one of them is not known, or when it may turn with the vehicle and its heading is not known."""
        before, after = self._attitude(from_ns), self._attitude(to_ns)
        if before is None or after is None:
            return None
        return rotation_homography(before, after, self._intrinsics)

    def _attitude(self, stamp_ns: int) -> Quaternion | None:
        q = self._gimbal.at(stamp_ns)
        if q is None or self._gimbal.yaw_frame is YawFrame.EARTH:
            return q
        heading = self._vehicle.at(stamp_ns)
        return None if heading is None else multiplied(from_yaw_pitch(heading, 0.0), q)
