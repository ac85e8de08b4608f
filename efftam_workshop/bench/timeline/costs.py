"""Derives the duration of driver calls and of a GPU's work from a time line, for a simulation of the GPU."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from efftam_ros.core.errors import InputError
from efftam_ros.runtime.bundle import NEEDED
from efftam_ros.runtime.spans import LAUNCH, WAIT, cause_of_driver_call
from efftam_workshop.bench.timeline.device import Recorded
from efftam_workshop.bench.timeline.spans import TimedFrame

MODULES = tuple(name for name in NEEDED if name != "prompt_encoder")
PYTHON_CALL_US = 1.0
"""Time that Python adds to each call of the CUDA driver. A simulation adds it too, so it is subtracted."""
LARGE_COPY_BYTES = 100_000
"""Copies of at least this size give the rate of copies; smaller ones are counted like kernels."""


@dataclass(frozen=True)
class DeviceCosts:
    """Median times of one run; None if not measured.

    Attributes:
        frame_ms: Time of a whole frame without recording, one frame directly after another.
        modules_ms: The GPU's time for each graph of the network, by the graph's name.
        calls_us: The host's time in each function of the CUDA driver that does not wait, by function name.
        run_us: The host's time to launch a graph through the back end, by the graph's name.
        start_us: From the beginning of a launch until the GPU begins, on a stream without other work.
        wake_us: From the end of the GPU's work until the host that waited for it continues.
        kernel_us: The GPU's time for one kernel or one small copy.
        bytes_per_us: Rate of large copies, bytes/us.
    """

    frame_ms: float
    modules_ms: dict[str, float]
    calls_us: dict[str, float]
    run_us: dict[str, float]
    start_us: float | None = None
    wake_us: float | None = None
    kernel_us: float | None = None
    bytes_per_us: float | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def measured_costs(
    frames: Sequence[TimedFrame],
    recorded: Recorded,
    frame_ms: float,
    stage_seconds: Mapping[str, Sequence[float]],
) -> DeviceCosts:
    """Return the median costs of the driver's calls and of the GPU's work on a time line.

    ``frame_ms``: median time of frames that were not recorded. ``stage_seconds``: times of the stages
    measured by CUDA events; used for graphs that have no span of their own, because they are part of a larger
    graph.
    """
    host = [span for one in frames for span in one.host]
    launches = [span for span in host if span.cause == LAUNCH and not span.name.startswith("cu")]
    calls = recorded.calls or [span for span in host if span.name.startswith("cu")]
    own_us = 0.0 if recorded.calls else PYTHON_CALL_US
    device = _by_name(recorded.device)
    small = [
        work.ns
        for work in recorded.device
        if work.name not in (*MODULES, *_by_name(launches))
        and recorded.bytes_copied.get(work, 0) < LARGE_COPY_BYTES
    ]
    rates = [1e3 * n / work.ns for work, n in recorded.bytes_copied.items() if n >= LARGE_COPY_BYTES]
    modules = {
        name: 1e3 * float(np.median(stage_seconds[name])) for name in MODULES if stage_seconds.get(name)
    }
    modules |= {name: float(np.median(device[name])) / 1e6 for name in MODULES if name in device}
    return DeviceCosts(
        frame_ms=frame_ms,
        modules_ms=modules,
        calls_us={
            name: max(0.0, float(np.median(ns)) / 1e3 - own_us)
            for name, ns in _by_name(calls).items()
            if cause_of_driver_call(name) != WAIT
        },
        run_us={name: float(np.median(ns)) / 1e3 for name, ns in _by_name(launches).items()},
        start_us=_median_us(_starts(frames)),
        wake_us=_median_us(_wakes(frames)),
        kernel_us=_median_us(small),
        bytes_per_us=float(np.median(rates)) if rates else None,
    )


def read_costs(path: Path) -> DeviceCosts:
    """Return the costs in a report of ``efftam bench --timeline --json``.

    Raises InputError if the file can't be read or its costs are missing, incomplete or no numbers of at least
    0.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))["timeline"]["costs"]
        costs = DeviceCosts(**{f.name: content[f.name] for f in fields(DeviceCosts)})
        numbers = [
            *costs.modules_ms.values(),
            *costs.calls_us.values(),
            *costs.run_us.values(),
            costs.frame_ms,
        ]
    except OSError as error:
        raise InputError(f"{path} can't be read ({error.strerror}); give a report of a time line") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(
            f"{path} has no costs of a GPU; write it by efftam bench --timeline --backend BACKEND --json FILE"
        ) from None
    if missing := [name for name in MODULES if name not in costs.modules_ms]:
        raise InputError(f"{path} has no time of {missing[0]}; measure the time line again")
    if not all(isinstance(n, int | float) and math.isfinite(n) and n >= 0 for n in numbers):
        raise InputError(f"{path} has a time that is not a number of at least 0; measure the time line again")
    return costs


def _by_name(spans: Any) -> Mapping[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for span in spans:
        found[span.name].append(span.ns)
    return found


def _median_us(ns: Sequence[int]) -> float | None:
    return float(np.median(ns)) / 1e3 if ns else None


def _starts(frames: Sequence[TimedFrame]) -> list[int]:
    """Return the times from launching a graph until the idle GPU began it, ns."""
    found = []
    for one in frames:
        for launch in one.host:
            if launch.cause != LAUNCH or launch.name.startswith("cu"):
                continue
            if any(work.start < launch.start < work.end for work in one.network):
                continue
            later = [work for work in one.network if work.start >= launch.start]
            if later and (first := min(later, key=lambda work: work.start)).name == launch.name:
                found.append(first.start - launch.start)
    return found


def _wakes(frames: Sequence[TimedFrame]) -> list[int]:
    """Return the times from the end of the GPU's work until the host's wait for it ended, ns.

    Waits within which no work ended are left out.
    """
    found = []
    for one in frames:
        for wait in one.host:
            ends = [work.end for work in one.network if wait.start < work.end <= wait.end]
            if wait.cause == WAIT and ends:
                found.append(wait.end - max(ends))
    return found
