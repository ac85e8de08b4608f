"""Paths in the rendered world: of the target, a car; of another car that looks the same; and of the drone.

Positions are north, east, up, m, from the middle of the ground. Headings count from north to the right, rad.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

Place = tuple[float, float, float]


@dataclass(frozen=True)
class Pose:
    """A place, m, and a heading, rad. ``turn``: rate of the heading, rad/s."""

    north: float
    east: float
    up: float
    heading: float
    turn: float = 0.0


@dataclass(frozen=True)
class Circuit:
    """The path of a car on a ring road, an ellipse.

    ``north_m``, ``east_m``: its half axes. ``period_s``: time of one round; a negative one reverses the
    direction. ``phase_s``: time that the car has driven already at time 0.
    """

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
    """The path of a drone that circles slowly above the road. Sines disturb its yaw and pitch.

    ``nose``: its first heading, rad. ``turn_s``: time of one turn of the heading; a negative one turns to the
    left. The heading turns so that the target stays away from the mount's stops. ``yaw_sway``,
    ``pitch_sway``: amplitudes of the disturbances, rad, at 0.25 and 0.4 Hz.
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
        """Return the error of the camera's pitch, rad: the small part of the vehicle's pitch that the gimbal
        does not compensate."""
        return 0.02 * self.pitch_sway * math.sin(2 * math.pi * 0.4 * time_s)

    def heading(self, time_s: float) -> tuple[float, float]:
        """Return the drone's heading, rad, and its rate, rad/s."""
        pose = self.at(time_s)
        return pose.heading, pose.turn


def direction(of: Pose, to: Pose, height: float = 0.7) -> tuple[float, float]:
    """Return yaw and pitch, rad, of the direction from the place ``of`` to a point above the place ``to``.
    ``height``: height of the point above the place, m."""
    north, east, up = to.north - of.north, to.east - of.east, to.up + height - of.up
    return math.atan2(east, north), math.atan2(up, math.hypot(north, east))
