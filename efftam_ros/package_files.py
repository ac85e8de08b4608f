"""Finds files of the package outside its Python folder, such as messages and configuration."""

from __future__ import annotations

import os
import sys
from pathlib import Path

PACKAGE = "efftam_ros"
PROFILE_VARIABLES = ("FASTRTPS_DEFAULT_PROFILES_FILE", "FASTDDS_DEFAULT_PROFILES_FILE")
"""Environment variables with the path of the profile ``config/fastdds_images.xml``.

Fast DDS 2 reads the first, Fast DDS 3 the second. Other middlewares read neither.
"""
FAST_DDS, CYCLONE_DDS, ZENOH = "rmw_fastrtps", "rmw_cyclonedds", "rmw_zenoh"
"""How the name of each middleware begins. A suffix such as ``_cpp`` follows."""


def middleware() -> str:
    """Return the name of the ROS 2 middleware in use, such as ``rmw_zenoh_cpp``.

    This is the value of the environment variable ``RMW_IMPLEMENTATION``. If the variable is not set, it is
    the name that rclpy reports, provided that rclpy is imported already. Otherwise it is the name of Fast
    DDS, the default of every distribution from Humble to Lyrical.
    """
    named = os.environ.get("RMW_IMPLEMENTATION", "")
    loaded = sys.modules.get("rclpy.utilities")
    if not named and loaded is not None:
        named = str(loaded.get_rmw_implementation_identifier())
    return named or "rmw_fastrtps_cpp"


def package_file(relative: str) -> Path | None:
    """Return the path of a file such as ``config/fastdds_images.xml``, or None if it is not found.

    The folders of `places` are searched in their order.
    """
    for place in places():
        if (place / relative).exists():
            return place / relative
    return None


def places() -> list[Path]:
    """Return the folders in which `package_file` searches, in order of preference.

    The first one contains the package in a checkout. The others are the share folders of the sourced ROS
    installations and of this Python.
    """
    prefixes = [p for p in os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep) if p] + [sys.prefix]
    return [Path(__file__).resolve().parents[1], *(Path(p) / "share" / PACKAGE for p in prefixes)]
