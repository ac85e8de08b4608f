"""Back ends and PyTorch baselines under one set of names, for measurements."""

from __future__ import annotations

from pathlib import Path

from efftam_ros.baselines.opening import BASELINES, open_baseline
from efftam_ros.core.contract import Pipeline
from efftam_ros.runtime.pipeline import BACKENDS, open_pipeline

MEASURABLE = (*BACKENDS, *BASELINES)


def open_measurable(bundle: Path | None, name: str, threads: int = 0) -> Pipeline:
    """Open a back end or a baseline. Raises as `open_pipeline` and `open_baseline` do."""
    if name in BASELINES:
        return open_baseline(bundle, name, threads)
    return open_pipeline(bundle, name, threads)
