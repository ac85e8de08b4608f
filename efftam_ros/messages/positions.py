"""Converts TargetPosition messages, the positions of targets on the ground, to values.

Nothing here imports ROS. Messages are read by attribute, so that messages of rclpy and messages of the
rosbags library can both be converted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from efftam_ros.core.types import TrackState
from efftam_ros.messages.reports import NAN, TargetReport, member, read_report


class HeightSource(IntEnum):
    """Values of TargetPosition.height_source: the source of the camera's height above the ground."""

    UNKNOWN = 0
    RANGE = 1
    TERRAIN = 2
    HOME = 3
    LOCAL = 4


@dataclass(frozen=True)
class PositionReport(TargetReport):
    """The content of a TargetPosition: the position of one target on the ground, computed from one image.

    The local frame has x east, y north and z up. All numbers are NaN if ``valid`` is False.

    Attributes:
        steered: Whether the target is the steered target.
        valid: Whether the numbers may be used.
        latitude: Latitude of the target, degrees; NaN where it is not known.
        longitude: Longitude of the target, degrees; NaN where it is not known.
        altitude: Altitude of the ground at the target, m above mean sea level.
        x: Position of the target in the local frame, m.
        y: Position of the target in the local frame, m.
        velocity_x: Velocity of the target over ground, m/s.
        velocity_y: Velocity of the target over ground, m/s.
        covariance: Covariance of (x, y, velocity_x, velocity_y), 16 numbers, row-major, m^2, m^2/s, m^2/s^2.
        range: Distance from the camera to the target, m.
        height_source: Source of the camera's height above the ground.
        camera_x: Position of the camera in the local frame, m.
        camera_y: Position of the camera in the local frame, m.
        camera_z: Height of the camera in the local frame, m.
    """

    steered: bool = True
    valid: bool = False
    latitude: float = NAN
    longitude: float = NAN
    altitude: float = NAN
    x: float = NAN
    y: float = NAN
    velocity_x: float = NAN
    velocity_y: float = NAN
    covariance: tuple[float, ...] = (NAN,) * 16
    range: float = NAN
    height_source: HeightSource = HeightSource.UNKNOWN
    camera_x: float = NAN
    camera_y: float = NAN
    camera_z: float = NAN

    @property
    def accuracy(self) -> float:
        """Standard deviation of the target's horizontal position, m: the root of the two variances' sum."""
        return math.sqrt(self.covariance[0] + self.covariance[5])

    @property
    def is_geographic(self) -> bool:
        """Whether latitude and longitude are known."""
        return math.isfinite(self.latitude) and math.isfinite(self.longitude)


def position_report(message: Any) -> PositionReport:
    """Convert a TargetPosition. Raises InputError if its state or height source has an unknown number."""
    return read_report(
        PositionReport,
        message,
        state=member(TrackState, "state", message.state),
        height_source=member(HeightSource, "height_source", message.height_source),
        covariance=tuple(map(float, message.covariance)),
        age_s=message.age,
    )
