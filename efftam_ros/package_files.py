"""Finds files of the package outside its Python folder, such as messages and configuration."""

from __future__ import annotations

import os
import sys
from pathlib import Path

PACKAGE = "efftam_ros"
PROFILE_VARIABLES = ("FASTRTPS_DEFAULT_PROFILES_FILE", "FASTDDS_DEFAULT_PROFILES_FILE")
"""Name the profile ``config/fastdds_images.xml`` to Fast DDS 2 and 3; other middlewares read neither."""
FAST_DDS, CYCLONE_DDS, ZENOH = "rmw_fastrtps", "rmw_cyclonedds", "rmw_zenoh"
"""How the names of middlewares begin."""


def middleware() -> str:
    """Return the name of the ROS 2 middleware in use, such as ``rmw_zenoh_cpp``.

    Without ``RMW_IMPLEMENTATION`` rclpy is asked where it is loaded; else it is Fast DDS, the default of
    every distribution from Humble to Lyrical.
    """
    named = os.environ.get("RMW_IMPLEMENTATION", "")
    loaded = sys.modules.get("rclpy.utilities")
    if not named and loaded is not None:
        named = str(loaded.get_rmw_implementation_identifier())
    return named or "rmw_fastrtps_cpp"


def package_file(relative: str) -> Path | None:
    """Return the path of a file such as ``config/fastdds_images.xml``, or None if it is not found.

    Searched: beside the package in a checkout, then the share folders of ROS installations and of this
    Python.
    """
    for place in places():
        if (place / relative).exists():
            return place / relative
    return None


def places() -> list[Path]:
    """Folders that are searched for such files, in order of preference."""
    prefixes = [p for p in os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep) if p] + [sys.prefix]
    return [Path(__file__).resolve().parents[1], *(Path(p) / "share" / PACKAGE for p in prefixes)]
