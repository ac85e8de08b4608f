"""Opens the bundles, back ends, policies and peers that `compare` measures."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from benchmarks.backends import open_measurable
from benchmarks.peers.registry import Peer, open_peer
from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.contract import Pipeline
from efftam_ros.core.errors import BackendError
from efftam_ros.core.tracker import Tracker
from efftam_ros.core.types import Frame, MemoryPlan, Prompt
from efftam_ros.runtime.tracker import open_tracker
from efftam_ros.tools.bench.frames import resident_mb

PEER = "peer"
"""What stands in the place of a peer's back end."""
First = tuple[Frame, Prompt | None]


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

    def attend(self, plan: MemoryPlan) -> None:
        self.maps, self.pointers = len(plan.slots), len(plan.pointer_slots)
        self._pipeline.attend(plan)


class Contender(Protocol):
    """``start_up_s``: time from opening to the first result; ``resident_mb``: growth of resident memory by
    opening and using it."""

    name: str
    backend: str
    start_up_s: float
    resident_mb: float

    @property
    def bundle(self) -> str: ...

    def step(self, frame: Frame, prompt: Prompt | None) -> Mapping[str, float]:
        """Process a frame; returns the durations of its stages, s."""
        ...

    def facts(self) -> dict[str, Any]:
        """``maps``, ``pointers``, ``device_mb`` (None: none, or not reported) and ``launch`` (how each
        module's work is launched on the device), after the last frame."""
        ...

    def close(self) -> None: ...


@dataclass
class Ours:
    """A bundle on a back end, with its tracker."""

    name: str
    backend: str
    pipeline: InstrumentedPipeline
    tracker: Tracker
    start_up_s: float = float("nan")
    resident_mb: float = float("nan")

    @property
    def bundle(self) -> str:
        return str(self.pipeline.spec.name)

    def step(self, frame: Frame, prompt: Prompt | None) -> Mapping[str, float]:
        return self.tracker.step(frame, prompt).stage_seconds

    def facts(self) -> dict[str, Any]:
        device_bytes = getattr(self.pipeline, "device_bytes", None)
        return {
            "maps": self.pipeline.maps,
            "pointers": self.pipeline.pointers,
            "device_mb": None if device_bytes is None else device_bytes / 1e6,
            "launch": dict(getattr(self.pipeline, "launch", {})),
        }

    def close(self) -> None:
        self.pipeline.close()


@dataclass
class Theirs:
    """A peer tracker. Its stages are not known; images are bgr8 and the prompt is a box."""

    peer: Peer
    start_up_s: float = float("nan")
    resident_mb: float = float("nan")

    backend = PEER

    def __post_init__(self) -> None:
        self.name = self.peer.name

    @property
    def bundle(self) -> str:
        return self.name

    def step(self, frame: Frame, prompt: Prompt | None) -> Mapping[str, float]:
        bgr = frame.image.rows.reshape(frame.image.height, frame.image.width, 3)
        if prompt is not None and prompt.box is not None:
            self.peer.start(bgr, prompt.box)
        else:
            self.peer.update(bgr)
        return {}

    def facts(self) -> dict[str, Any]:
        return {"maps": None, "pointers": None, "device_mb": None, "launch": {}}

    def close(self) -> None:
        return


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
    configs: Sequence[TrackerConfig],
    first: First,
    *,
    threads: int = 0,
    skip_unavailable: bool = False,
    zero_copy: bool = False,
) -> tuple[list[Ours], list[LeftOut]]:
    """Open every bundle (None: the shipped one) on every back end with every configuration, and run the first
    frame; returns also those that can't run here.

    Raises:
        InputError: As `open_measurable`.
        BackendError: Names all back ends that can't run; with ``skip_unavailable`` only when none can.
    """
    contenders: list[Ours] = []
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
            contender.close()
        raise
    return contenders, left_out


def _open(
    bundle: Path | None, backend: str, threads: int, config: TrackerConfig, first: First, zero_copy: bool
) -> Ours:
    before_mb, start = resident_mb(), time.perf_counter()
    pipeline = InstrumentedPipeline(open_measurable(bundle, backend, threads, zero_copy))
    try:
        contender = Ours("", backend, pipeline, open_tracker(cast(Pipeline, pipeline), config))
        contender.step(*first)
    except BaseException:
        pipeline.close()
        raise
    contender.start_up_s = time.perf_counter() - start
    contender.resident_mb = resident_mb() - before_mb
    contender.name = f"{contender.bundle} {backend}"
    return contender


def open_peers(names: Sequence[str], models: Path | None, threads: int, first: First) -> list[Theirs]:
    """Open the peers and run the first frame. ``models`` and ``threads``, and the errors: as `open_peer`."""
    contenders = []
    for name in names:
        before_mb, start = resident_mb(), time.perf_counter()
        contender = Theirs(open_peer(name, models, threads))
        contender.step(*first)
        contender.start_up_s = time.perf_counter() - start
        contender.resident_mb = resident_mb() - before_mb
        contenders.append(contender)
    return contenders


def _refusal(left_out: Sequence[LeftOut], skipping: bool) -> BackendError:
    reasons = "; ".join(dict.fromkeys(one.text for one in left_out))
    if skipping:
        return BackendError(f"no back end is left to measure: {reasons}", left_out[0].remedy)
    return BackendError(reasons, f"{left_out[0].remedy}, or leave it out with --skip-unavailable")
