"""Times frames of several networks and back ends side by side, and splits them into modules and glue."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.contract import Pipeline
from efftam_ros.core.geometry import Box, View
from efftam_ros.core.tracker import Tracker
from efftam_ros.core.types import Candidates, Frame, Image, MemoryPlan, PipelineSpec, Prompt
from efftam_ros.runtime.pipeline import open_pipeline
from efftam_ros.tools.progress import progress_bar
from efftam_ros.tools.scene import render_scene
from efftam_ros.tools.video import NS

MODULES = ("image_encoder", "memory_attention", "mask_decoder", "memory_encoder")
# More than the frames until 16 pointers and all maps are attended, and until clocks and caches have settled.
WARM_UP = 40
PICTURES = 24
FPS = 30.0


class Watched:
    """A pipeline that notes how much memory each frame attends to; everything else passes through."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self.maps = self.pointers = 0

    @property
    def spec(self) -> PipelineSpec:
        return self._pipeline.spec

    @property
    def stage_seconds(self) -> Mapping[str, float]:
        return self._pipeline.stage_seconds

    def encode(self, image: Image, view: View) -> None:
        self._pipeline.encode(image, view)

    def attend(self, plan: MemoryPlan) -> None:
        self.maps, self.pointers = len(plan.slots), len(plan.pointer_slots)
        self._pipeline.attend(plan)

    def decode(self, prompt: Prompt | None) -> Candidates:
        return self._pipeline.decode(prompt)

    def remember(self, choice: int, slot: int, present: bool) -> None:
        self._pipeline.remember(choice, slot, present)

    def mask(self, choice: int) -> NDArray[np.uint8]:
        return self._pipeline.mask(choice)

    def close(self) -> None:
        self._pipeline.close()


@dataclass
class Contender:
    """A network on a back end, with its tracker."""

    name: str
    backend: str
    pipeline: Watched
    tracker: Tracker


@dataclass
class Timing:
    """What was measured of one contender. ``whole`` s of each frame; ``stages`` s of each stage of each
    frame; ``ratios`` whole over the four modules of the frames that ran all four; ``incomplete`` counts the
    others."""

    name: str
    bundle: str
    backend: str
    whole: list[float] = field(default_factory=list)
    stages: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    ratios: list[float] = field(default_factory=list)
    incomplete: int = 0
    maps: int = 0
    pointers: int = 0

    def add(self, whole_s: float, stage_seconds: Mapping[str, float]) -> None:
        self.whole.append(whole_s)
        for name, seconds in stage_seconds.items():
            self.stages[name].append(seconds)
        if all(name in stage_seconds for name in MODULES):
            self.ratios.append(whole_s / sum(stage_seconds[name] for name in MODULES))
        else:
            self.incomplete += 1

    @property
    def whole_ms(self) -> float:
        return 1e3 * float(np.median(self.whole))

    @property
    def whole_p99_ms(self) -> float:
        return 1e3 * float(np.percentile(self.whole, 99))

    @property
    def medians_ms(self) -> dict[str, float]:
        return {name: 1e3 * float(np.median(seconds)) for name, seconds in self.stages.items()}

    @property
    def glue_ratio(self) -> float | None:
        return float(np.median(self.ratios)) if self.ratios else None

    def times_faster_than_torch(self, all_of_them: Sequence[Timing]) -> float | None:
        """Against the torch back end on the same bundle, None when it was not measured."""
        for other in all_of_them:
            if other.backend == "torch" and other.bundle == self.bundle:
                return other.whole_ms / self.whole_ms
        return None

    def record(self, all_of_them: Sequence[Timing]) -> dict[str, Any]:
        """What --json writes."""
        return {
            "name": self.name,
            "bundle": self.bundle,
            "backend": self.backend,
            "frames": len(self.whole),
            "whole_ms": self.whole_ms,
            "whole_p99_ms": self.whole_p99_ms,
            "stages_ms": self.medians_ms,
            "stages_p99_ms": {name: 1e3 * float(np.percentile(s, 99)) for name, s in self.stages.items()},
            "glue_ratio": self.glue_ratio,
            "incomplete_frames": self.incomplete,
            "times_faster_than_torch": self.times_faster_than_torch(all_of_them),
            "maps": self.maps,
            "pointers": self.pointers,
        }


def open_contenders(
    bundles: Sequence[Path | None], backends: Sequence[str], threads: int, policy: str, view: str | None
) -> list[Contender]:
    """Open every bundle in every back end. Raises InputRefused and BackendUnavailable as `open_pipeline`
    does."""
    config = TrackerConfig(policy=policy, view=view or "bundle")
    contenders = []
    for bundle in bundles:
        for backend in backends:
            pipeline = Watched(open_pipeline(bundle, backend, threads))
            name = f"{pipeline.spec.name} {backend}"
            contenders.append(Contender(name, backend, pipeline, Tracker(pipeline, config)))
    return contenders


def measure_frames(contenders: Sequence[Contender], frames: int, *, quiet: bool = False) -> list[Timing]:
    """Warm up, then give each frame to every contender in turn (who is first changes) and time it."""
    timings = [Timing(c.name, c.pipeline.spec.name, c.backend) for c in contenders]
    pairs = list(zip(contenders, timings, strict=True))
    with progress_bar(frames + WARM_UP, "bench", quiet=quiet) as bar:
        for index, (frame, prompt) in enumerate(itertools.islice(endless_frames(), frames + WARM_UP)):
            turn = index % len(pairs)
            for contender, timing in pairs[turn:] + pairs[:turn]:
                whole, stages = timed_step(contender, frame, prompt)
                if index >= WARM_UP:
                    timing.add(whole, stages)
                    timing.maps, timing.pointers = contender.pipeline.maps, contender.pipeline.pointers
            bar.update()
    return timings


def timed_step(
    contender: Contender, frame: Frame, prompt: Prompt | None
) -> tuple[float, Mapping[str, float]]:
    """Seconds from the decoded image to box out and memory written, and those of each stage."""
    start = time.perf_counter()
    track = contender.tracker.step(frame, prompt)
    return time.perf_counter() - start, track.stage_seconds


def endless_frames(size: tuple[int, int] = (1280, 720)) -> Iterator[tuple[Frame, Prompt | None]]:
    """Pictures of the synthetic scene, to and fro without a jump, with rising stamps; the first with its true
    box."""
    scene = list(render_scene(frames=PICTURES, size=size, fps=FPS))
    box: Box | None = scene[0].box
    to_and_fro = [*range(len(scene)), *range(len(scene) - 2, 0, -1)]
    for count, index in enumerate(itertools.cycle(to_and_fro)):
        frame = Frame(Image.from_array(scene[index].bgr), NS + round(count * NS / FPS))
        yield frame, Prompt(box=box) if count == 0 else None
