"""The position of a target on the ground, as values.

Messages are read by attribute, as in `images.message`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from efftam_ros.core.types import TrackState
from efftam_ros.messages.reports import NAN, TargetReport, member, read_report


class HeightSource(IntEnum):
    """What the camera's height above the ground was taken from. The numbers are those of TargetPosition."""

    UNKNOWN = 0
    RANGE = 1
    TERRAIN = 2
    HOME = 3
    LOCAL = 4


@dataclass(frozen=True)
class PositionReport(TargetReport):
    """A TargetPosition: one target in one image. ``valid`` False: all numbers are NaN.

    ``latitude``, ``longitude`` degrees, NaN where they are not known; ``altitude`` of the ground, m above
    mean sea level; ``x`` east, ``y`` north in the local frame, m, velocities m/s; ``covariance``: 16 numbers
    of these four, row-major; ``range`` from the camera, m; ``camera_x``, ``camera_y``, ``camera_z``: where
    the camera was.
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
        """Standard deviation of the horizontal position, both axes together, m."""
        return math.sqrt(self.covariance[0] + self.covariance[5])

    @property
    def is_geographic(self) -> bool:
        """Whether latitude and longitude are known."""
        return math.isfinite(self.latitude) and math.isfinite(self.longitude)


def position_report(message: Any) -> PositionReport:
    """Return a TargetPosition. Raises InputError for a state or source that does not exist."""
    return read_report(
        PositionReport,
        message,
        state=member(TrackState, "state", message.state),
        height_source=member(HeightSource, "height_source", message.height_source),
        covariance=tuple(map(float, message.covariance)),
        age_s=message.age,
    )
