"""Repair the CMake files of the ROS 2 wheels, so that messages can be built in this virtual environment.

The wheels were built in a container. The exported CMake targets of every message package contain absolute
paths of that container's header folders of Python and numpy. Run this script with the environment's own
Python after the installation. It may be run again.
"""

from __future__ import annotations

import re
import sys
import sysconfig
from pathlib import Path

import numpy as np

BUILD_PYTHON = r"/opt/python/cp\d+-cp\d+"
HEADERS = (
    (re.compile(BUILD_PYTHON + r"/lib/python\d\.\d+/site-packages/numpy/_?core/include"), np.get_include()),
    (re.compile(BUILD_PYTHON + r"/include/python\d\.\d+"), sysconfig.get_path("include")),
)


def repair(prefix: Path) -> int:
    """Replace the header folders in all CMake files under ``prefix``; returns how many files changed."""
    changed = 0
    for folder in (prefix / "share", prefix / "lib" / "cmake"):
        for path in folder.rglob("*.cmake"):
            before = path.read_text(encoding="utf-8")
            after = before
            for pattern, here in HEADERS:
                # A function, because in a plain text `sub` would interpret a folder's backslashes as escapes.
                after = pattern.sub(lambda _, here=here: here, after)
            if after != before:
                path.write_text(after, encoding="utf-8")
                changed += 1
    return changed


if __name__ == "__main__":
    print(f"fix_exports: {repair(Path(sys.prefix))} CMake files repaired")
