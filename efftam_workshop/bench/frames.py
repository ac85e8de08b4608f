"""Measures the time of a frame, by stage and over a long run. The tracker is opened as the node opens it."""

from __future__ import annotations

import functools
import itertools
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.contract import Pipeline
from efftam_ros.core.errors import InputError
from efftam_ros.core.types import Frame, Image, Prompt, Track
from efftam_ros.runtime.opening import open_targets
from efftam_ros.runtime.spans import CAMERA_MOTION, IDENTITY, Watch
from efftam_workshop.bench.moving_target import endless

# Frames that are not measured: memory maps and pointers fill up, and clock rates settle. In a long run the
# memory allocators settle too, which takes `SETTLED` frames.
WARM_UP, SETTLED = 40, 100
A_CROP = "identity of a crop"

Frames = Iterator[tuple[Frame, Prompt | None]]


def drawn_frames(size: tuple[int, int]) -> Frames:
    """Yield frames of a drawn moving target without end, ``size`` (width, height) px.

    The first frame comes with the target's box as prompt, the others with None.
    """
    for number, (picture, stamp_ns, box) in enumerate(endless(size)):
        yield Frame(Image.from_array(picture), stamp_ns), Prompt(box=box) if number == 0 else None


def timed(
    pipeline: Pipeline, config: TrackerConfig, frames: Frames, watch: Watch | None = None
) -> Iterator[tuple[float, float, Track]]:
    """Track the target of ``frames`` and measure each frame.

    Yields for each frame the time until the box is known, s; the time until the frame is stored in memory, s;
    and the track. ``watch``: as in `open_targets`.
    """
    targets = open_targets(pipeline, config, watch)
    for frame, prompt in frames:
        begin = time.perf_counter()
        ((_, track, *_),) = targets.step(frame, {} if prompt is None else {0: prompt})
        answered = time.perf_counter()
        targets.remember()
        yield answered - begin, time.perf_counter() - begin, track


def measure_stages(
    pipeline: Pipeline, config: TrackerConfig, frames: Frames, count: int
) -> dict[str, dict[str, float]]:
    """Measure ``count`` frames after the warm-up, one directly after another.

    Returns ``median_ms`` and ``p99_ms`` for each stage, for "image to box", for the "whole frame", and for
    each crop that the identity network describes. Raises InputError if ``frames`` ends within the warm-up.
    """
    if hasattr(pipeline, "stage_interval"):  # a GPU's pipeline, which does not time every frame by itself
        pipeline.stage_interval = 1
    host: dict[str, float] = defaultdict(float)
    crops: list[float] = []

    def watch(cause: str, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def took(seconds: float, *given: Any) -> None:
            if cause == IDENTITY:
                _, boxes = given
                crops.extend([1e3 * seconds / max(1, len(boxes))] * len(boxes))
            else:
                host[cause] += seconds

        return _clocked(call, took) if cause in (CAMERA_MOTION, IDENTITY) else call

    times: dict[str, list[float]] = defaultdict(list)
    answers = timed(pipeline, config, itertools.islice(frames, WARM_UP + count), watch)
    for number, (box_s, whole_s, track) in enumerate(answers):
        found = {**track.stage_seconds, **host, "image to box": box_s, "whole frame": whole_s}
        for name, seconds in found.items() if number >= WARM_UP else ():
            times[name].append(1e3 * seconds)
        host.clear()
    if not times:
        raise InputError(f"no frame is left to measure after {WARM_UP} frames of warm-up; give more frames")
    if len(crops) > 1:
        times[A_CROP] = crops[1:]  # crops of the warm-up count too, because few frames have a crop
    return {
        name: {"median_ms": float(np.median(ms)), "p99_ms": float(np.percentile(ms, 99))}
        for name, ms in times.items()
    }


def _clocked(method: Callable[..., Any], took: Callable[..., None]) -> Callable[..., Any]:
    """Return ``method`` wrapped so that each call also calls ``took`` with its duration, s, and arguments."""

    @functools.wraps(method)
    def clocked(*given: Any, **named: Any) -> Any:
        begin = time.perf_counter()
        try:
            return method(*given, **named)
        finally:
            took(time.perf_counter() - begin, *given, *named.values())

    return clocked


def measure_soak(pipeline: Pipeline, config: TrackerConfig, frames: Frames, seconds: float) -> dict[str, Any]:
    """Track for ``seconds`` after the first `SETTLED` frames.

    Returns the number of ``frames``, and three values each at the start and at the end: ``resident_mb``,
    memory of this process; ``device_mb``, memory in use on its GPU (None without a GPU); ``whole_ms``, median
    time of a frame.
    """
    answers = timed(pipeline, config, frames)
    for _ in itertools.islice(answers, SETTLED):
        pass
    memory = [(resident_mb(), device_used_mb())]
    end = time.monotonic() + seconds
    times: list[float] = []
    while not times or time.monotonic() < end:
        times.append(1e3 * next(answers)[1])
    memory.append((resident_mb(), device_used_mb()))
    quarter = max(1, len(times) // 4)
    return {
        "frames": len(times),
        "resident_mb": [resident for resident, _ in memory],
        "device_mb": [device for _, device in memory],
        "whole_ms": [float(np.median(part)) for part in (times[:quarter], times[-quarter:])],
    }


def resident_mb() -> float:
    """Return the resident memory of this process, MB. Raises InputError on systems other than Linux."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        raise InputError("resident memory is read from /proc, which this system lacks; use Linux") from None
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def device_used_mb() -> float | None:
    """Return the used memory of the current CUDA device (all processes), MB; None without a CUDA context."""
    try:
        from cuda.bindings import driver

        code, free, total = driver.cuMemGetInfo()
    except (ImportError, RuntimeError):  # cuda-bindings without a driver
        return None
    return None if int(code) else (total - free) / 1e6
