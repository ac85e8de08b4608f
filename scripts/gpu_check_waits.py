"""Counts the CUDA calls per frame, with Nsight Systems or with CUPTI."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

# Calls of the longer run minus those of the shorter one: opening and warm-up cancel out.
FRAMES = (100, 200)
WAITS = r"cuda(Event|Stream|Device)Synchronize|cu(Event|Stream|Ctx)Synchronize|cudaMemcpy|cuMemcpy(DtoH|HtoD)"
ALLOCATIONS = r"cudaMalloc\w*|cudaFree\w*|cudaHostAlloc|cuMemHostAlloc|cuMemAlloc\w*|cuMemFree\w*"
# Suffixes that Nsight appends to some names.
VERSION = r"(_v\d+|_ptsz)*"


def calls(report: str) -> dict[str, int]:
    """API name -> number of calls, from the CSV text of `nsys stats --report cuda_api_sum`."""
    # nsys writes its own messages above the header.
    start = re.search(r'^.*"?Num Calls"?.*$', report, flags=re.M)
    if start is None:
        raise ValueError("nsys stats wrote no table of CUDA calls")
    rows = csv.DictReader(io.StringIO(report[start.start() :]))
    return {row["Name"]: int(row["Num Calls"]) for row in rows if row.get("Name")}


def per_frame(fewer: dict[str, int], more: dict[str, int], frames: int) -> dict[str, float]:
    """Calls per frame by API name, of those that grow with ``frames`` more frames."""
    grown = {name: (count - fewer.get(name, 0)) / frames for name, count in more.items()}
    return {name: round(value, 3) for name, value in grown.items() if value}


def count_of(counts: dict[str, float], names: str) -> float:
    return round(sum(n for name, n in counts.items() if re.fullmatch(f"(?:{names}){VERSION}", name)), 3)


def measure(
    nsys: str | None, bench: Sequence[str], folder: Path, run: Callable[[str, Sequence[str]], str]
) -> dict[str, Any]:
    """Count the calls of ``bench`` (arguments of benchmarks without --frames) in a shorter and a longer run.

    ``nsys``: path of Nsight Systems; None to count with CUPTI. ``run(title, command)`` runs a command,
    returns its stdout and raises RuntimeError when it fails.
    """
    fewer, more = (
        _counted_by_cupti(bench, folder, run, frames)
        if nsys is None
        else _traced(nsys, bench, folder, run, frames)
        for frames in FRAMES
    )
    grown = per_frame(fewer, more, FRAMES[1] - FRAMES[0])
    return {
        "counted_by": "CUPTI" if nsys is None else "Nsight Systems",
        "waits_per_frame": count_of(grown, WAITS),
        "allocations_per_frame": count_of(grown, ALLOCATIONS),
        "calls_per_frame": grown,
    }


def _counted_by_cupti(
    bench: Sequence[str], folder: Path, run: Callable[[str, Sequence[str]], str], frames: int
) -> dict[str, int]:
    out = folder / f"calls_{frames}.json"
    script = Path(__file__).with_name("gpu_check_calls.py")
    run(f"calls of {frames} frames", [sys.executable, str(script), str(out), *bench, "--frames", str(frames)])
    counted: dict[str, int] = json.loads(out.read_text(encoding="utf-8"))
    return counted


def _traced(
    nsys: str, bench: Sequence[str], folder: Path, run: Callable[[str, Sequence[str]], str], frames: int
) -> dict[str, int]:
    trace = folder / f"trace_{frames}.nsys-rep"
    command = [nsys, "profile", "--trace=cuda", "--sample=none", "--cpuctxsw=none", "--force-overwrite=true"]
    command += [f"--output={trace}", sys.executable, "-m", "benchmarks", *bench, "--frames", str(frames)]
    run(f"trace of {frames} frames", command)
    table = ["stats", "--report", "cuda_api_sum", "--format", "csv", "--force-export=true", str(trace)]
    return calls(run(f"calls of {frames} frames", [nsys, *table]))
