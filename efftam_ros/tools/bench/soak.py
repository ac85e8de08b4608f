"""Soak test: growth of memory and frame time over many frames."""

from __future__ import annotations

import itertools

import numpy as np

from efftam_ros.tools.bench.contenders import Contender
from efftam_ros.tools.bench.frames import Frames, timed_step
from efftam_ros.tools.bench.machine import device_used_mb, resident_mb
from efftam_ros.tools.common.progress import progress_bar

# Frames until buffers, caches and allocators have their final size.
SETTLED = 100


def measure_soak(
    contender: Contender, frames: Frames, count: int, *, quiet: bool = False
) -> dict[str, float | None]:
    """Run ``count`` frames after `SETTLED` others.

    Returns:
        ``start_mb``, ``end_mb``, ``growth_mb`` of resident memory; the same prefixed with ``device_`` for
            memory in use on the device, None where unknown or unused; ``first_ms`` and ``last_ms``, median
            frame times of the first and last quarter; ``drift``, their relative difference.
    """
    times = []
    on_device = contender.pipeline.device_bytes is not None
    with progress_bar(SETTLED + count, f"soak {contender.name}", quiet=quiet) as bar:
        for frame, prompt in itertools.islice(frames, SETTLED):
            contender.tracker.step(frame, prompt)
            bar.update()
        start_mb, device_start_mb = resident_mb(), device_used_mb() if on_device else None
        for frame, prompt in itertools.islice(frames, count):
            times.append(timed_step(contender, frame, prompt)[0])
            bar.update()
    end_mb, device_end_mb = resident_mb(), device_used_mb() if on_device else None
    device_growth_mb = None
    if device_start_mb is not None and device_end_mb is not None:
        device_growth_mb = device_end_mb - device_start_mb
    quarter = len(times) // 4
    first, last = (1e3 * float(np.median(part)) for part in (times[:quarter], times[-quarter:]))
    return {
        "frames": count,
        "start_mb": start_mb,
        "end_mb": end_mb,
        "growth_mb": end_mb - start_mb,
        "device_start_mb": device_start_mb,
        "device_end_mb": device_end_mb,
        "device_growth_mb": device_growth_mb,
        "first_ms": first,
        "last_ms": last,
        "drift": last / first - 1,
    }
