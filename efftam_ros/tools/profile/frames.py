"""Records the operators that a back end runs per frame."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol, cast

from efftam_ros.baselines.opening import BASELINES
from efftam_ros.core.contract import Pipeline
from efftam_ros.core.errors import InputError
from efftam_ros.runtime.pipeline import BACKENDS, DEFAULT_BACKEND, open_tracker
from efftam_ros.tools.bench.contenders import Contender, InstrumentedPipeline
from efftam_ros.tools.bench.frames import MODULES, WARM_UP, Timing, endless_frames, timed_step
from efftam_ros.tools.common.options import open_bundle
from efftam_ros.tools.common.progress import progress_bar
from efftam_ros.tools.profile.trace import Operation, onnxruntime_operations, torch_operations

STAGES = ("preprocess", "prompt_encoder", *MODULES)


@dataclass(frozen=True)
class OperatorTime:
    """Time of an operator in one module. ``where``: provider or device; ``calls`` and ``ms`` per frame."""

    module: str
    operator: str
    where: str
    calls: float
    ms: float


@dataclass(frozen=True)
class Profile:
    """Operators of a contender's frames, slowest first.

    ``frame_ms``: frame time with the profiler; ``plain_ms``: without it; ``stages_ms``: of each stage without
    it. All are means.
    """

    contender: str
    bundle: str
    backend: str
    frames: int
    frame_ms: float
    plain_ms: float
    stages_ms: Mapping[str, float]
    operators: tuple[OperatorTime, ...]

    @property
    def operators_ms(self) -> float:
        return sum(operator.ms for operator in self.operators)

    @property
    def explained(self) -> float:
        """Share of the profiled frames' time that the operators account for."""
        return self.operators_ms / self.frame_ms

    def module_ms(self, module: str) -> float | None:
        """Time of a module per frame; None if none of its operators ran."""
        return sum((o.ms for o in self.operators if o.module == module), 0.0) or None

    def record(self) -> dict[str, Any]:
        """The figures written by --json."""
        return {
            "name": self.contender,
            "bundle": self.bundle,
            "backend": self.backend,
            "frames": self.frames,
            "frame_ms": self.frame_ms,
            "plain_frame_ms": self.plain_ms,
            "plain_stages_ms": dict(self.stages_ms),
            "operators_ms": self.operators_ms,
            "explained": self.explained,
            "operators": [
                {
                    "module": o.module,
                    "operator": o.operator,
                    "where": o.where,
                    "calls_per_frame": o.calls,
                    "ms_per_frame": o.ms,
                    "share": o.ms / self.frame_ms,
                }
                for o in self.operators
            ],
        }


class Recorder(Protocol):
    """A contender whose operators are recorded inside ``with recorder.recording()``."""

    contender: Contender

    def recording(self) -> AbstractContextManager[None]: ...

    def operations(self, runs: Mapping[str, int]) -> Iterator[Operation]:
        """Yield the recorded operations. ``runs``: how often each stage ran during the recording."""
        ...


class OnnxruntimeRecorder:
    """Opens a separate pipeline, because onnxruntime's profiler must be on when a session is opened."""

    def __init__(self, plain: Contender, bundle: Path | None, threads: int, folder: Path) -> None:
        from efftam_ros.runtime.onnxruntime.cpu import OrtPipeline

        self._pipeline = OrtPipeline(open_bundle(bundle), threads, profile_folder=folder)
        watched = InstrumentedPipeline(self._pipeline)
        self.contender = Contender(
            plain.name, plain.backend, watched, open_tracker(cast(Pipeline, watched), plain.tracker.config)
        )

    @contextmanager
    def recording(self) -> Iterator[None]:
        yield

    def operations(self, runs: Mapping[str, int]) -> Iterator[Operation]:
        for graph, path in self._pipeline.end_profiling().items():
            yield from onnxruntime_operations(path, graph, runs.get(graph, 0))


class TorchRecorder:
    """Runs PyTorch's profiler around frames of an open pipeline."""

    def __init__(self, plain: Contender, folder: Path) -> None:
        self.contender = plain
        self._trace = folder / "torch.json"

    @contextmanager
    def recording(self) -> Iterator[None]:
        from efftam_ros.baselines.timing import operators_recorded

        with operators_recorded(self._trace):
            yield

    def operations(self, runs: Mapping[str, int]) -> Iterator[Operation]:
        return torch_operations(self._trace, STAGES)


def open_recorder(plain: Contender, bundle: Path | None, threads: int, folder: Path) -> Recorder:
    """Open the recorder for a contender's back end; its traces are written to ``folder``."""
    if plain.backend in BASELINES:
        return TorchRecorder(plain, folder)
    return OnnxruntimeRecorder(plain, bundle, threads, folder)


def check_can_profile(backends: Iterable[str]) -> None:
    """Raise InputError for a back end that can't be profiled by operator."""
    named = [DEFAULT_BACKEND, *BASELINES]
    for name in backends:
        if name in BACKENDS and name not in named:
            raise InputError(
                f"--backend {name} can't be profiled by operator; choose from {', '.join(named)}"
            )


def profile_frames(recorder: Recorder, timing: Timing, frames: int, *, quiet: bool = False) -> Profile:
    """Warm up, then record ``frames`` frames; ``timing`` is the same contender's without a profiler."""
    contender = recorder.contender
    runs: Counter[str] = Counter()
    whole = 0.0
    scene_frames = endless_frames()
    with progress_bar(frames + WARM_UP, f"profile {contender.backend}", quiet=quiet) as bar:
        for frame, prompt in itertools.islice(scene_frames, WARM_UP):
            timed_step(contender, frame, prompt)
            bar.update()
        with recorder.recording():
            for frame, prompt in itertools.islice(scene_frames, frames):
                seconds, stages = timed_step(contender, frame, prompt)
                whole += seconds
                runs.update(stages.keys())
                bar.update()
    return Profile(
        contender=contender.name,
        bundle=timing.bundle,
        backend=contender.backend,
        frames=frames,
        frame_ms=1e3 * whole / frames,
        plain_ms=1e3 * fmean(timing.whole),
        stages_ms={name: 1e3 * fmean(seconds) for name, seconds in timing.stages.items()},
        operators=tuple(_summed(recorder.operations(runs), frames)),
    )


def _summed(operations: Iterable[Operation], frames: int) -> list[OperatorTime]:
    calls: Counter[tuple[str, str, str]] = Counter()
    seconds: defaultdict[tuple[str, str, str], float] = defaultdict(float)
    for operation in operations:
        key = operation.module, operation.operator, operation.where
        calls[key] += 1
        seconds[key] += operation.seconds
    costliest_first = sorted(seconds, key=lambda key: -seconds[key])
    return [OperatorTime(*key, calls[key] / frames, 1e3 * seconds[key] / frames) for key in costliest_first]
