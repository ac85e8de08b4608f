"""Finds files of the package outside its Python folder, such as messages and configuration."""

from __future__ import annotations

import os
import sys
from pathlib import Path

PACKAGE = "efftam_ros"
PROFILE_VARIABLES = ("FASTRTPS_DEFAULT_PROFILES_FILE", "FASTDDS_DEFAULT_PROFILES_FILE")
"""Name the profile ``config/fastdds_images.xml`` to Fast DDS 2 and 3."""


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
