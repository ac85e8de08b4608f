"""Measures frame times of several contenders in alternating turns.

A GPU back end returns from a frame before its memory encoder has run, and the next frame waits for it.
Therefore each turn runs several frames back to back and does not count the first, which includes work of the
previous contender.
"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from efftam_ros.baselines.opening import BASELINES
from efftam_ros.core.geometry import Box
from efftam_ros.core.types import Frame, Image, Prompt
from efftam_ros.tools.bench.contenders import Contender
from efftam_ros.tools.bench.machine import resident_mb
from efftam_ros.tools.bench.peers import PEER, PeerContender
from efftam_ros.tools.common.progress import progress_bar
from efftam_ros.tools.common.video import NS
from efftam_ros.tools.scene.render import render_scene

MODULES = ("image_encoder", "memory_attention", "mask_decoder", "memory_encoder")
# Enough frames to fill maps and pointers and to settle clocks and caches.
WARM_UP = 40
# Counted frames per turn: several back to back, but few enough that all contenders see the same machine
# state.
TURN = 5
SCENE_FRAMES = 24
FPS = 30.0
IMAGE_SIZE = (1280, 720)

Frames = Iterator[tuple[Frame, Prompt | None]]


@dataclass
class Timing:
    """Measurements of one contender.

    Attributes:
        name: Name of the contender.
        bundle: Name of its bundle.
        backend: Name of its back end.
        whole: Duration of each frame, s.
        stages: Durations of each stage, s.
        ratios: Whole frame over the sum of its four modules, for frames that ran all four.
        incomplete: Number of the other frames; 0 for a peer, which has no modules.
        maps: Maps attended to in the last frame.
        pointers: Pointers attended to in the last frame.
        start_up_s: Time from opening to the first result.
        resident_mb: Growth of resident memory.
        device_mb: As reported by the pipeline, or None.
        launch: How each module is launched.
    """

    name: str
    bundle: str
    backend: str
    whole: list[float] = field(default_factory=list)
    stages: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    ratios: list[float] = field(default_factory=list)
    incomplete: int = 0
    maps: int = 0
    pointers: int = 0
    start_up_s: float = float("nan")
    resident_mb: float = float("nan")
    device_mb: float | None = None
    launch: Mapping[str, str] = field(default_factory=dict)

    def add(self, whole_s: float, stage_seconds: Mapping[str, float]) -> None:
        self.whole.append(whole_s)
        for name, seconds in stage_seconds.items():
            self.stages[name].append(seconds)
        if all(name in stage_seconds for name in MODULES):
            self.ratios.append(whole_s / sum(stage_seconds[name] for name in MODULES))
        elif self.backend != PEER:
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

    def times_faster(self, all_of_them: Sequence[Timing]) -> dict[str, float]:
        """Speed-up over each of `BASELINES` measured on the same bundle."""
        return {
            other.backend: other.whole_ms / self.whole_ms
            for other in all_of_them
            if other.backend in BASELINES and other.bundle == self.bundle
        }

    def relative(self, all_of_them: Sequence[Timing]) -> float:
        """Time per frame relative to that of the first contender of the run."""
        return self.whole_ms / all_of_them[0].whole_ms

    def record(self, all_of_them: Sequence[Timing]) -> dict[str, Any]:
        """The figures written by --json."""
        return {
            "name": self.name,
            "bundle": self.bundle,
            "backend": self.backend,
            "frames": len(self.whole),
            "whole_ms": self.whole_ms,
            "whole_p99_ms": self.whole_p99_ms,
            "stages_ms": self.medians_ms,
            "stages_p99_ms": {name: 1e3 * float(np.percentile(s, 99)) for name, s in self.stages.items()},
            "relative": self.relative(all_of_them),
            "glue_ratio": self.glue_ratio,
            "incomplete_frames": self.incomplete,
            "times_faster_than": self.times_faster(all_of_them),
            "maps": self.maps,
            "pointers": self.pointers,
            "start_up_s": self.start_up_s,
            "resident_mb": self.resident_mb,
            "device_mb": self.device_mb,
            "launch": dict(self.launch),
        }


def measure_frames(
    contenders: Sequence[Contender | PeerContender], frames: Frames, count: int, *, quiet: bool = False
) -> list[Timing]:
    """Warm up each contender, then measure ``count`` frames of each in turns of `TURN`, in rotating order.

    All contenders get the same frames.
    """
    timings = [Timing(c.name, c.bundle, c.backend) for c in contenders]
    pairs = list(zip(contenders, timings, strict=True))
    with progress_bar((count + WARM_UP) * len(pairs), "bench", quiet=quiet) as bar:
        warm_up = list(itertools.islice(frames, WARM_UP))
        for contender in contenders:
            before_mb = resident_mb()
            for frame, prompt in warm_up:
                contender.step(frame, prompt)
                bar.update()
            contender.resident_mb += resident_mb() - before_mb
        lead_in = 1 if len(pairs) > 1 else 0
        for turn, done in enumerate(range(0, count, TURN)):
            taken = list(itertools.islice(frames, lead_in + min(TURN, count - done)))
            first = turn % len(pairs)
            for contender, timing in pairs[first:] + pairs[:first]:
                for frame, prompt in taken[:lead_in]:
                    contender.step(frame, prompt)
                for frame, prompt in taken[lead_in:]:
                    timing.add(*timed_step(contender, frame, prompt))
                    bar.update()
    for contender, timing in pairs:
        _note_state(contender, timing)
    return timings


def _note_state(contender: Contender | PeerContender, timing: Timing) -> None:
    timing.start_up_s, timing.resident_mb = contender.start_up_s, contender.resident_mb
    if isinstance(contender, PeerContender):
        return
    pipeline = contender.pipeline
    timing.maps, timing.pointers = pipeline.maps, pipeline.pointers
    timing.device_mb = None if pipeline.device_bytes is None else pipeline.device_bytes / 1e6
    timing.launch = dict(pipeline.launch)


def timed_step(
    contender: Contender | PeerContender, frame: Frame, prompt: Prompt | None
) -> tuple[float, Mapping[str, float]]:
    """Process a frame; returns its total duration and those of its stages, s."""
    start = time.perf_counter()
    stages = contender.step(frame, prompt)
    return time.perf_counter() - start, stages


def endless_frames(size: tuple[int, int] = IMAGE_SIZE) -> Frames:
    """Frames of the synthetic scene, alternately forwards and backwards, with increasing stamps.

    The first has its true box as prompt.
    """
    scene = list(render_scene(frames=SCENE_FRAMES, size=size, fps=FPS))
    box: Box | None = scene[0].box
    back_and_forth = [*range(len(scene)), *range(len(scene) - 2, 0, -1)]
    for count, index in enumerate(itertools.cycle(back_and_forth)):
        frame = Frame(Image.from_array(scene[index].bgr), NS + round(count * NS / FPS))
        yield frame, Prompt(box=box) if count == 0 else None
