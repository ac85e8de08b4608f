"""Back ends in every precision, and PyTorch baselines, under one set of names, for measurements."""

from __future__ import annotations

from pathlib import Path

from efftam_ros.baselines.opening import BASELINES, open_baseline
from efftam_ros.core.contract import Pipeline
from efftam_ros.runtime.pipeline import TABLE, open_pipeline

MEASURABLE = (
    *(
        row.name if precision == "auto" else f"{row.name}:{precision}"
        for row in TABLE
        for precision in row.variants
    ),
    *BASELINES,
)


def open_measurable(bundle: Path | None, name: str, threads: int = 0, zero_copy: bool = False) -> Pipeline:
    """Open a back end, "name" or "name:precision", or a baseline. Raises as `open_pipeline` and
    `open_baseline` do."""
    if name in BASELINES:
        return open_baseline(bundle, name, threads)
    backend, _, precision = name.partition(":")
    return open_pipeline(bundle, backend, threads, zero_copy=zero_copy, precision=precision or "auto")
