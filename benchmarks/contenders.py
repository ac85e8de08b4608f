"""The contenders of `compare`: this package's tracker with bundle, back end and policy, and peer trackers."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from benchmarks.backends import BASELINES, open_measurable
from benchmarks.peers.registry import Peer
from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.contract import Answers, Look, Pipeline
from efftam_ros.core.errors import BackendError
from efftam_ros.core.types import Frame, Image, Prompt
from efftam_ros.runtime.opening import open_targets
from efftam_workshop.bench.frames import resident_mb

PEER = "peer"
"""Stands in place of a back end's name in the record of a peer tracker."""
MODULES = ("image_encoder", "memory_attention", "mask_decoder", "memory_encoder")
First = tuple[Frame, Prompt | None]


def no_facts() -> dict[str, Any]:
    return {"maps": None, "pointers": None, "device_mb": None, "launch": {}}


@dataclass
class Contender:
    """A tracker that is measured, and its measurements.

    ``step``: processes a frame and returns the durations of its stages, s.
    ``facts``: returns, after the last frame: ``maps`` and ``pointers``, the numbers of memory maps and of
    pointers to which the last frame attended; ``device_mb`` (None: no device, or not reported); ``launch``,
    how each module is launched.
    ``start_up_s``: time from opening to the first result.
    ``resident_mb``: growth of the process's resident memory by opening and using this tracker.
    ``whole``, ``stages``: durations of each counted frame, and of each stage in it, s.
    ``ratios``: time of the whole frame divided by the sum of its four modules, for frames that ran all four.
    """

    name: str
    bundle: str
    backend: str
    step: Callable[[Frame, Prompt | None], Mapping[str, float]] = lambda frame, prompt: {}
    facts: Callable[[], dict[str, Any]] = no_facts
    close: Callable[[], None] = lambda: None
    start_up_s: float = float("nan")
    resident_mb: float = float("nan")
    whole: list[float] = field(default_factory=list)
    stages: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    ratios: list[float] = field(default_factory=list)

    def add(self, whole_s: float, stage_seconds: Mapping[str, float]) -> None:
        self.whole.append(whole_s)
        for name, seconds in stage_seconds.items():
            self.stages[name].append(seconds)
        if all(name in stage_seconds for name in MODULES):
            self.ratios.append(whole_s / sum(stage_seconds[name] for name in MODULES))

    @property
    def whole_ms(self) -> float:
        return 1e3 * float(np.median(self.whole))

    def record(self, all_of_them: Sequence[Contender]) -> dict[str, Any]:
        """Return the figures of this contender for --json.

        ``all_of_them``: all contenders of the run. In the result, ``relative`` compares with the first of
        them; ``incomplete_frames`` counts frames that did not run all four modules (0 for a peer);
        ``times_faster_than`` compares with each of `BASELINES` that ran the same bundle.
        """
        return {
            "name": self.name,
            "bundle": self.bundle,
            "backend": self.backend,
            "frames": len(self.whole),
            "whole_ms": self.whole_ms,
            "whole_p99_ms": 1e3 * float(np.percentile(self.whole, 99)),
            "stages_ms": {name: 1e3 * float(np.median(seconds)) for name, seconds in self.stages.items()},
            "relative": self.whole_ms / all_of_them[0].whole_ms,
            "glue_ratio": float(np.median(self.ratios)) if self.ratios else None,
            "incomplete_frames": 0 if self.backend == PEER else len(self.whole) - len(self.ratios),
            "times_faster_than": {
                other.backend: other.whole_ms / self.whole_ms
                for other in all_of_them
                if other.backend in BASELINES and other.bundle == self.bundle
            },
            **self.facts(),
            "start_up_s": self.start_up_s,
            "resident_mb": self.resident_mb,
        }


class InstrumentedPipeline:
    """Wraps a pipeline, makes it time the stages of every frame, and counts the maps and pointers used.

    All other calls go to the wrapped pipeline.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        if hasattr(pipeline, "stage_interval"):  # a GPU, where stages are not timed in every frame by default
            pipeline.stage_interval = 1
        self._attended = 0, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pipeline, name)

    def look(self, image: Image, looks: Sequence[Look]) -> Answers:
        for look in looks:
            self._attended = len(look.plan.slots), len(look.plan.pointer_slots)
        return self._pipeline.look(image, looks)

    def facts(self) -> dict[str, Any]:
        device_bytes = getattr(self._pipeline, "device_bytes", None)
        return {
            **dict(zip(("maps", "pointers"), self._attended, strict=True)),
            "device_mb": None if device_bytes is None else device_bytes / 1e6,
            "launch": dict(getattr(self._pipeline, "launch", {})),
        }


def ours(pipeline: Pipeline, backend: str, config: TrackerConfig) -> Contender:
    """Return this package's tracker on an opened pipeline as a contender."""
    watched, bundle = InstrumentedPipeline(pipeline), pipeline.spec.name
    targets = open_targets(cast(Pipeline, watched), config)

    def step(frame: Frame, prompt: Prompt | None) -> Mapping[str, float]:
        ((_, track, *_),) = targets.step(frame, {} if prompt is None else {0: prompt})
        return track.stage_seconds

    return Contender(f"{bundle} {backend}", bundle, backend, step, watched.facts, pipeline.close)


def theirs(peer: Peer) -> Contender:
    """Return a peer tracker as a contender. It reports no stages. Images must be bgr8, the prompt a box."""

    def step(frame: Frame, prompt: Prompt | None) -> Mapping[str, float]:
        bgr = frame.image.rows.reshape(frame.image.height, frame.image.width, 3)
        if prompt is not None and prompt.box is not None:
            peer.start(bgr, prompt.box)
        else:
            peer.update(bgr)
        return {}

    return Contender(peer.name, peer.name, PEER, step)


def opened(make: Callable[[], Contender], first: First) -> Contender:
    """Call ``make``, run the first frame, and return the contender with its start-up time and memory."""
    before_mb, start = resident_mb(), time.perf_counter()
    contender = make()
    try:
        contender.step(*first)
    except BaseException:
        contender.close()
        raise
    contender.start_up_s = time.perf_counter() - start
    contender.resident_mb = resident_mb() - before_mb
    return contender


class LeftOut(NamedTuple):
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
) -> tuple[list[Contender], list[LeftOut]]:
    """Open every bundle (None: the shipped one) on every back end with every configuration.

    Each contender runs the frame ``first``. Returns the contenders, and the back ends that can't run here.

    Raises:
        InputError: From `open_measurable`.
        BackendError: Some back ends can't run; with ``skip_unavailable``: none can. It names all of them.
    """
    contenders: list[Contender] = []
    left_out: list[LeftOut] = []
    try:
        for bundle, backend in ((bundle, backend) for bundle in bundles for backend in backends):
            try:
                for config in configs:
                    make = partial(_opened, bundle, backend, threads, zero_copy, config)
                    contenders.append(opened(make, first))
                    if len(configs) > 1:
                        contenders[-1].name += f" {config.policy}"
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


def _opened(
    bundle: Path | None, backend: str, threads: int, zero_copy: bool, config: TrackerConfig
) -> Contender:
    return ours(open_measurable(bundle, backend, threads, zero_copy), backend, config)


def _refusal(left_out: Sequence[LeftOut], skipping: bool) -> BackendError:
    reasons = "; ".join(dict.fromkeys(one.text for one in left_out))
    if skipping:
        return BackendError(f"no back end is left to measure: {reasons}", left_out[0].remedy)
    return BackendError(reasons, f"{left_out[0].remedy}, or leave it out with --skip-unavailable")
