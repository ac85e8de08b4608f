"""Runs many frames and looks for what grows: resident memory and frame time."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import numpy as np

from efftam_ros.core.contract import InputRefused
from efftam_ros.tools.bench_frames import Contender, endless_frames, timed_step
from efftam_ros.tools.progress import progress_bar

# Frames after which buffers, caches and allocators have their size.
SETTLED = 100


def measure_soak(contender: Contender, frames: int, *, quiet: bool = False) -> dict[str, float]:
    """Run ``frames`` frames after `SETTLED` others.

    Returns ``start_mb``, ``end_mb``, ``growth_mb`` of resident memory, ``first_ms`` and ``last_ms`` median
    frame time of the first and last quarter, and ``drift``, their relative difference.
    """
    times = []
    start_mb = resident_mb()
    with progress_bar(SETTLED + frames, f"soak {contender.name}", quiet=quiet) as bar:
        for index, (frame, prompt) in enumerate(itertools.islice(endless_frames(), SETTLED + frames)):
            whole, _ = timed_step(contender, frame, prompt)
            if index >= SETTLED:
                times.append(whole)
            elif index == SETTLED - 1:
                start_mb = resident_mb()
            bar.update()
    end_mb = resident_mb()
    quarter = len(times) // 4
    first, last = (1e3 * float(np.median(part)) for part in (times[:quarter], times[-quarter:]))
    return {
        "frames": frames,
        "start_mb": start_mb,
        "end_mb": end_mb,
        "growth_mb": end_mb - start_mb,
        "first_ms": first,
        "last_ms": last,
        "drift": last / first - 1,
    }


def resident_mb() -> float:
    """Resident memory of this process, MB. Raises InputRefused where the system does not tell (not Linux)."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        raise InputRefused(
            "--soak reads resident memory from /proc, which this system lacks; run it on Linux"
        ) from None
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
