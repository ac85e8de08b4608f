"""The types of the values that tracker, gimbal and autopilot exchange.

Stamps (``stamp_ns``) are integer ns on the images' clock. Angles and rates follow MAVLink's gimbal protocol:
pitch positive up, yaw positive right (clockwise seen from above), rad and rad/s. The camera looks along the
gimbal's forward axis.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

NS = 1_000_000_000
Quaternion = tuple[float, float, float, float]


class YawFrame(Enum):
    """The direction in which the yaw of a gimbal's attitude is zero."""

    EARTH = "earth"  # yaw counts from north
    VEHICLE = "vehicle"  # yaw counts from the vehicle's nose


class Control(Enum):
    """Who controls the gimbal, as the gimbal's manager reports."""

    UNKNOWN = "unknown"  # no manager has reported yet: rates may be sent nevertheless
    HELD = "held"  # this bridge is in control
    OTHER = "other"  # another component is in control
    NOBODY = "nobody"  # control was released, or the autopilot restarted
    SILENT = "silent"  # the manager, which reported before, does not report any more


@dataclass(frozen=True)
class AttitudeSample:
    """The gimbal's attitude at one stamp.

    ``q`` (w, x, y, z) transforms from the gimbal's forward-right-down axes to level forward-right-down axes.
    Forward of the level axes is north or the vehicle's nose, as ``yaw_frame`` states. ``at_pitch_limit``,
    ``at_yaw_limit``: the gimbal reports that this axis is at an end stop.
    """

    stamp_ns: int
    q: Quaternion
    yaw_frame: YawFrame
    at_pitch_limit: bool = False
    at_yaw_limit: bool = False


# The first line has bits of MAVLink's GIMBAL_DEVICE_FLAGS, the second one bits of GIMBAL_DEVICE_ERROR_FLAGS.
YAW_LOCK, IN_VEHICLE_FRAME, IN_EARTH_FRAME = 16, 32, 64
AT_PITCH_LIMIT, AT_YAW_LIMIT = 2, 4


def device_sample(stamp_ns: int, q: Quaternion, flags: int, failures: int) -> AttitudeSample:
    """Return a sample from the fields of message 285. If ``flags`` name no frame, the bit YAW_LOCK means that
    yaw counts from north."""
    from_north = not flags & IN_VEHICLE_FRAME and flags & (IN_EARTH_FRAME | YAW_LOCK)
    frame = YawFrame.EARTH if from_north else YawFrame.VEHICLE
    return AttitudeSample(stamp_ns, q, frame, bool(failures & AT_PITCH_LIMIT), bool(failures & AT_YAW_LIMIT))


class VehicleSample(NamedTuple):
    """The vehicle's attitude at one stamp: heading ``yaw`` from north, rad; ``yaw_rate``, rad/s; ``roll``,
    positive right side down, rad; ``pitch``, positive nose up, rad."""

    stamp_ns: int
    yaw: float
    yaw_rate: float
    roll: float = 0.0
    pitch: float = 0.0


@dataclass(frozen=True)
class GimbalLimits:
    """Angles of the gimbal's mechanical stops, rad; infinite where an axis has no stop. Yaw counts from the
    vehicle's nose."""

    pitch_min: float = -math.inf
    pitch_max: float = math.inf
    yaw_min: float = -math.inf
    yaw_max: float = math.inf

    def tightened(self, other: GimbalLimits) -> GimbalLimits:
        """Return the limits that both allow: on each side the tighter stop of the two."""
        return GimbalLimits(
            max(self.pitch_min, other.pitch_min),
            min(self.pitch_max, other.pitch_max),
            max(self.yaw_min, other.yaw_min),
            min(self.yaw_max, other.yaw_max),
        )


@dataclass(frozen=True)
class Rates:
    """Commanded rates of the gimbal, rad/s. Pitch is positive up, yaw positive to the right."""

    pitch: float = 0.0
    yaw: float = 0.0

    def limited(self, most: float) -> Rates:
        """Return rates in the same direction whose vector is at most ``most`` long, rad/s."""
        size = math.hypot(self.pitch, self.yaw)
        return self if size <= most else Rates(self.pitch * most / size, self.yaw * most / size)

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.pitch) and math.isfinite(self.yaw)

    @property
    def is_zero(self) -> bool:
        return self.pitch == 0.0 and self.yaw == 0.0


STOPPED = Rates()
