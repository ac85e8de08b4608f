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

    UNKNOWN = "unknown"  # no manager has been heard: nothing is held back
    HELD = "held"  # by us
    OTHER = "other"  # by another component
    NOBODY = "nobody"  # released, or the autopilot restarted
    SILENT = "silent"  # the manager was heard and is not any more


@dataclass(frozen=True)
class AttitudeSample:
    """The gimbal's attitude: ``q`` (w, x, y, z) turns forward-right-down axes of the gimbal into level
    forward-right-down axes whose forward is ``yaw_frame``'s zero."""

    stamp_ns: int
    q: Quaternion
    yaw_frame: YawFrame
    at_pitch_limit: bool = False
    at_yaw_limit: bool = False


class VehicleSample(NamedTuple):
    """The vehicle's heading from north, rad, and how fast it turns, rad/s."""

    stamp_ns: int
    yaw: float
    yaw_rate: float


@dataclass(frozen=True)
class GimbalLimits:
    """Mechanical stops, rad; yaw from the vehicle's nose. Infinite where there is none."""

    pitch_min: float = -math.inf
    pitch_max: float = math.inf
    yaw_min: float = -math.inf
    yaw_max: float = math.inf

    def tightened(self, other: GimbalLimits) -> GimbalLimits:
        """The intersection of both."""
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

    @property
    def is_finite(self) -> bool:
        return math.isfinite(self.pitch) and math.isfinite(self.yaw)

    @property
    def is_zero(self) -> bool:
        return self.pitch == 0.0 and self.yaw == 0.0

    def to_twist(self) -> tuple[float, float, float]:
        """Angular part of a geometry_msgs/Twist, axes forward-left-up: (0, -pitch, -yaw)."""
        return 0.0, -self.pitch, -self.yaw

    @classmethod
    def from_twist(cls, x: float, y: float, z: float) -> Rates:
        """From the angular part of a Twist in forward-left-up axes. ``x`` (roll) is not used."""
        return cls(pitch=-y, yaw=-z)


STOPPED = Rates()
