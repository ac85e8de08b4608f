"""Finds the files that belong to the package but lie outside its Python folder: messages, configuration."""

from __future__ import annotations

import os
import sys
from pathlib import Path

PACKAGE = "efftam_ros"


def package_file(relative: str) -> Path | None:
    """A file such as ``config/fastdds_images.xml``: beside the package in a checkout, else in the share
    folder of a ROS installation or of this Python; None when it is nowhere."""
    for place in places():
        if (place / relative).exists():
            return place / relative
    return None


def places() -> list[Path]:
    """Where such files may lie, best first."""
    prefixes = [p for p in os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep) if p] + [sys.prefix]
    return [Path(__file__).resolve().parents[2], *(Path(p) / "share" / PACKAGE for p in prefixes)]
