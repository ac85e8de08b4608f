"""Opens the bundles and back ends that `efftam bench` compares."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.contract import Pipeline
from efftam_ros.core.errors import BackendError, InputError
from efftam_ros.core.tracker import Tracker
from efftam_ros.core.types import Frame, MemoryPlan, Prompt
from efftam_ros.runtime.pipeline import open_tracker
from efftam_ros.tools.bench.machine import resident_mb
from efftam_ros.tools.common.backends import open_measurable


class InstrumentedPipeline:
    """A pipeline that times the stages of every frame, and counts the memory each attends to; all other calls
    are passed on."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        if hasattr(pipeline, "stage_interval"):  # of a device, where times cost time
            pipeline.stage_interval = 1
        self.maps = self.pointers = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pipeline, name)

    @property
    def device_bytes(self) -> int | None:
        """Device memory that the pipeline holds; None where it holds none or does not report it."""
        return getattr(self._pipeline, "device_bytes", None)

    @property
    def launch(self) -> Mapping[str, str]:
        """How each module's work is launched on the device, by module; empty where not reported."""
        return getattr(self._pipeline, "launch", {})

    def attend(self, plan: MemoryPlan) -> None:
        self.maps, self.pointers = len(plan.slots), len(plan.pointer_slots)
        self._pipeline.attend(plan)


@dataclass
class Contender:
    """A bundle on a back end, with its tracker.

    ``start_up_s``: time from opening to the first result; ``resident_mb``: growth of resident memory by
    opening and using it.
    """

    name: str
    backend: str
    pipeline: InstrumentedPipeline
    tracker: Tracker
    start_up_s: float = float("nan")
    resident_mb: float = float("nan")

    @property
    def bundle(self) -> str:
        return self.pipeline.spec.name

    def step(self, frame: Frame, prompt: Prompt | None) -> Mapping[str, float]:
        """Process a frame; returns the durations of its stages, s."""
        return self.tracker.step(frame, prompt).stage_seconds


@dataclass(frozen=True)
class LeftOut:
    """A contender that can't run here."""

    name: str
    backend: str
    reason: str
    remedy: str

    @property
    def text(self) -> str:
        return self.reason if self.backend in self.reason else f"{self.name}: {self.reason}"


def open_contenders(
    bundles: Sequence[Path | None],
    backends: Sequence[str],
    threads: int,
    policies: Sequence[str],
    view: str | None,
    first: tuple[Frame, Prompt | None],
    *,
    skip_unavailable: bool = False,
    zero_copy: bool = False,
) -> tuple[list[Contender], list[LeftOut]]:
    """Open every bundle on every back end with every policy, and run the first frame.

    Args:
        bundles: Folders, None for the shipped bundle.
        backends: Names from `MEASURABLE`.
        threads: CPU threads of each.
        policies: Policies of the trackers; their names are shown where there are several.
        view: View of the trackers, None for the bundle's.
        first: The first frame and its prompt.
        zero_copy: As in `open_pipeline`.
        skip_unavailable: Return back ends that can't run here instead of raising.

    Returns:
        The contenders, and those left out.

    Raises:
        InputError: As `open_measurable`.
        BackendError: Names all back ends that can't run; with ``skip_unavailable`` only when none can.
    """
    configs = [TrackerConfig(policy=policy, view=view or "bundle") for policy in policies]
    contenders: list[Contender] = []
    left_out: list[LeftOut] = []
    try:
        for bundle in bundles:
            for backend in backends:
                try:
                    for config in configs:
                        contender = _open(bundle, backend, threads, config, first, zero_copy)
                        if len(configs) > 1:
                            contender.name += f" {config.policy}"
                        contenders.append(contender)
                except BackendError as problem:
                    name = backend if bundle is None else f"{bundle.name} {backend}"
                    left_out.append(LeftOut(name, backend, problem.reason, problem.remedy))
        if left_out and not (skip_unavailable and contenders):
            raise _refusal(left_out, skip_unavailable)
    except BaseException:
        for contender in contenders:
            contender.pipeline.close()
        raise
    return contenders, left_out


def _open(
    bundle: Path | None,
    backend: str,
    threads: int,
    config: TrackerConfig,
    first: tuple[Frame, Prompt | None],
    zero_copy: bool,
) -> Contender:
    before_mb, start = resident_mb(), time.perf_counter()
    pipeline = InstrumentedPipeline(open_measurable(bundle, backend, threads, zero_copy))
    try:
        tracker = open_tracker(cast(Pipeline, pipeline), config)
        tracker.step(*first)
    except BaseException:
        pipeline.close()
        raise
    seconds = time.perf_counter() - start
    name = f"{pipeline.spec.name} {backend}"
    return Contender(name, backend, pipeline, tracker, seconds, resident_mb() - before_mb)


def _refusal(left_out: Sequence[LeftOut], skipping: bool) -> BackendError:
    reasons = "; ".join(dict.fromkeys(one.text for one in left_out))
    if skipping:
        return BackendError(f"no back end is left to measure: {reasons}", left_out[0].remedy)
    if len(left_out) == 1:
        return BackendError(reasons, f"{left_out[0].remedy}, or leave it out with --skip-unavailable")
    return BackendError(reasons, "see efftam doctor, or leave them out with --skip-unavailable")


def chosen_backends(text: str) -> list[str]:
    """Parse an option "A,B" of back ends. Raises InputError when there is none."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise InputError(f"--backend is {text!r}; name at least one, as in --backend onnxruntime-cpu")
    return list(dict.fromkeys(names))
