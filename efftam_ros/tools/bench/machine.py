"""Memory in use while measuring."""

from __future__ import annotations

import os
from pathlib import Path

from efftam_ros.core.errors import InputError


def resident_mb() -> float:
    """Resident memory of this process, MB. Raises InputError on systems other than Linux."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        raise InputError(
            "bench reads resident memory from /proc, which this system lacks; run it on Linux"
        ) from None
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def device_used_mb() -> float | None:
    """Memory in use on the current CUDA device by all processes, MB; None where unknown.

    Call it only in a process that uses the device already, because it initialises CUDA, which takes memory.
    """
    try:
        from cuda.bindings import driver
    except ImportError:
        return None
    code, free, total = driver.cuMemGetInfo()
    return None if int(code) else (total - free) / 1e6
