"""The values that pass between tracker, gimbal and autopilot.

Stamps (``stamp_ns``) are on the clock of the images, integer ns. Angles and rates follow MAVLink's gimbal
protocol: pitch positive up, yaw positive right (clockwise seen from above), rad and rad/s. The camera looks
along the gimbal's forward axis.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

NS = 1_000_000_000
Quaternion = tuple[float, float, float, float]


class YawFrame(Enum):
    """What the yaw of a gimbal's attitude is counted from."""

    EARTH = "earth"  # north
    VEHICLE = "vehicle"  # the vehicle's nose


class Control(Enum):
    """Who controls the gimbal, as its manager reports."""

    UNKNOWN = "unknown"  # no manager has reported: rates are not held back
    HELD = "held"  # by us
    OTHER = "other"  # by another component
    NOBODY = "nobody"  # released, or the autopilot restarted
    SILENT = "silent"  # the manager reported and does not any more


@dataclass(frozen=True)
class AttitudeSample:
    """The gimbal's attitude: ``q`` (w, x, y, z) turns forward-right-down axes of the gimbal into level
    forward-right-down axes whose forward is ``yaw_frame``'s zero."""

    stamp_ns: int
    q: Quaternion
    yaw_frame: YawFrame
    at_pitch_limit: bool = False
    at_yaw_limit: bool = False


# MAVLink's GIMBAL_DEVICE_FLAGS and GIMBAL_DEVICE_ERROR_FLAGS.
YAW_LOCK, IN_VEHICLE_FRAME, IN_EARTH_FRAME = 16, 32, 64
AT_PITCH_LIMIT, AT_YAW_LIMIT = 2, 4


def device_sample(stamp_ns: int, q: Quaternion, flags: int, failures: int) -> AttitudeSample:
    """Make a sample from the fields of message 285; without a frame bit in its flags, YAW_LOCK decides."""
    from_north = not flags & IN_VEHICLE_FRAME and flags & (IN_EARTH_FRAME | YAW_LOCK)
    frame = YawFrame.EARTH if from_north else YawFrame.VEHICLE
    return AttitudeSample(stamp_ns, q, frame, bool(failures & AT_PITCH_LIMIT), bool(failures & AT_YAW_LIMIT))


class VehicleSample(NamedTuple):
    """The vehicle's heading from north, rad, how fast it turns, rad/s, and its tilt, rad: ``roll`` right side
    down, ``pitch`` nose up."""

    stamp_ns: int
    yaw: float
    yaw_rate: float
    roll: float = 0.0
    pitch: float = 0.0


@dataclass(frozen=True)
class GimbalLimits:
    """Mechanical stops, rad; yaw from the vehicle's nose. Infinite where there is none."""

    pitch_min: float = -math.inf
    pitch_max: float = math.inf
    yaw_min: float = -math.inf
    yaw_max: float = math.inf

    def tightened(self, other: GimbalLimits) -> GimbalLimits:
        """Return the intersection of both."""
        return GimbalLimits(
            max(self.pitch_min, other.pitch_min),
            min(self.pitch_max, other.pitch_max),
            max(self.yaw_min, other.yaw_min),
            min(self.yaw_max, other.yaw_max),
        )


@dataclass(frozen=True)
class Rates:
    """Commanded rates of the gimbal, rad/s: pitch up, yaw right positive."""

    pitch: float = 0.0
    yaw: float = 0.0

    def limited(self, most: float) -> Rates:
        """Return the same direction at no more than ``most``, rad/s."""
        size = math.hypot(self.pitch, self.yaw)
        return self if size <= most else Rates(self.pitch * most / size, self.yaw * most / size)

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.pitch) and math.isfinite(self.yaw)

    @property
    def is_zero(self) -> bool:
        return self.pitch == 0.0 and self.yaw == 0.0


STOPPED = Rates()
