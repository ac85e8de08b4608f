"""How much memory is in use, on the host or the device."""

from __future__ import annotations

import os
from pathlib import Path

from efftam_ros.core.errors import InputError


def resident_mb() -> float:
    """Resident memory of this process, MB. Raises InputError where the system does not tell (not Linux)."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        raise InputError(
            "bench reads resident memory from /proc, which this system lacks; run it on Linux"
        ) from None
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def device_used_mb() -> float | None:
    """Memory in use on the current CUDA device by all processes, MB; None where it can't be asked. Ask only
    in a process that uses the device already: asking starts CUDA, which takes memory itself."""
    try:
        from cuda.bindings import runtime
    except ImportError:
        return None
    code, free, total = runtime.cudaMemGetInfo()
    return None if int(code) else (total - free) / 1e6
