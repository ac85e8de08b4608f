"""Positions in the rendered world by time: the target car, its look-alike, the drone.

North, east, up in metres from the middle of the ground; headings from north to the right, rad.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

Place = tuple[float, float, float]


@dataclass(frozen=True)
class Pose:
    """A place and a heading, rad; ``turn`` is the heading's rate, rad/s."""

    north: float
    east: float
    up: float
    heading: float
    turn: float = 0.0


@dataclass(frozen=True)
class Circuit:
    """A ring road driven at a steady pace: an ellipse. A negative period is the other way round; ``phase_s``
    is the head start."""

    north_m: float
    east_m: float
    period_s: float
    phase_s: float = 0.0

    def at(self, time_s: float) -> Pose:
        angle = 2 * math.pi * (time_s + self.phase_s) / self.period_s
        north, east = self.north_m * math.sin(angle), self.east_m * math.cos(angle)
        way = math.copysign(1.0, self.period_s)
        ahead = (way * self.north_m * math.cos(angle), -way * self.east_m * math.sin(angle))
        return Pose(north, east, 0.0, math.atan2(ahead[1], ahead[0]))


@dataclass(frozen=True)
class Drone:
    """A drone that circles slowly above the road and shakes: yaw and pitch disturbed by sines.

    ``nose``: its first heading, rad; it turns once in ``turn_s``, to the left when that is negative, as a
    pilot does who keeps the target away from the mount's stops. ``yaw_sway``, ``pitch_sway``: amplitude, rad,
    of the disturbance, at 0.25 and 0.4 Hz.
    """

    height_m: float = 55.0
    radius_m: float = 25.0
    period_s: float = 90.0
    nose: float = math.radians(80.0)
    turn_s: float = -60.0
    yaw_sway: float = math.radians(12.0)
    pitch_sway: float = math.radians(3.0)

    def at(self, time_s: float) -> Pose:
        angle = 2 * math.pi * time_s / self.period_s
        sway, turn = 2 * math.pi * 0.25, 2 * math.pi / self.turn_s
        return Pose(
            self.radius_m * math.cos(angle),
            self.radius_m * math.sin(angle),
            self.height_m,
            self.nose + turn * time_s + self.yaw_sway * math.sin(sway * time_s),
            turn + self.yaw_sway * sway * math.cos(sway * time_s),
        )

    def pitch(self, time_s: float) -> float:
        """What the gimbal leaves of the vehicle's pitch, rad: a stabilised mount takes most of it out."""
        return 0.02 * self.pitch_sway * math.sin(2 * math.pi * 0.4 * time_s)

    def heading(self, time_s: float) -> tuple[float, float]:
        """Heading and its rate, for the gimbal's mount."""
        pose = self.at(time_s)
        return pose.heading, pose.turn


def direction(of: Pose, to: Pose, height: float = 0.7) -> tuple[float, float]:
    """Yaw and pitch under which a place is seen, rad; ``height`` of the point above it, m."""
    north, east, up = to.north - of.north, to.east - of.east, to.up + height - of.up
    return math.atan2(east, north), math.atan2(up, math.hypot(north, east))
