"""Settings of the estimator of positions."""

from __future__ import annotations

import math
from dataclasses import dataclass

from efftam_ros.core.config import CheckedSettings, setting


@dataclass(frozen=True)
class PositionConfig(CheckedSettings):
    """Errors of the measurements, each one standard deviation, and limits of the estimate."""

    attitude_error: float = setting(
        math.radians(1.0), "error of the camera's tilt, about each level axis, rad", within=(1e-4, 0.5)
    )
    heading_error: float = setting(
        math.radians(2.0), "error of the camera's heading from north, rad", within=(1e-4, 1.0)
    )
    bearing_error: float = setting(
        math.radians(0.1), "least error of a bearing in the image, rad", within=(1e-5, 0.2)
    )
    delay_error: float = setting(
        0.15,
        "error of images' stamps relative to those of attitudes and positions, s; it matters while the"
        " camera turns or moves",
        within=(0.0, 1.0),
    )
    range_error: float = setting(0.3, "error of the range finder, m", within=(0.0, 100.0))
    terrain_error: float = setting(3.0, "error of a height from terrain data, m", within=(0.0, 1000.0))
    home_error: float = setting(
        1.0, "error if the height above home is used as height above the ground, m", within=(0.0, 1000.0)
    )
    target_height: float = setting(
        0.0, "height of the middle of the target's box above the ground, m; a person: 0.9", within=(0.0, 50.0)
    )
    min_depression: float = setting(
        math.radians(5.0),
        "smallest angle below the horizon at which a bearing gives a position, rad",
        within=(0.01, 1.5),
    )
    target_acceleration: float = setting(
        0.15,
        "how freely a standing target is expected to accelerate, m/s^2 per square root of Hz; a fast target"
        " more freely",
        within=(0.001, 100.0),
    )
    coast: float = setting(
        1.0, "how long a position is predicted while nothing is measured, s", within=(0.0, 10.0)
    )
