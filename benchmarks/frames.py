"""Measures frame times of several contenders in alternating turns.

A GPU back end returns from a frame before its memory encoder has run, and the next frame waits for it.
Therefore each turn runs several frames back to back and does not count the first, which includes work of the
previous contender.
"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.backends import BASELINES
from benchmarks.contenders import PEER, Contender
from efftam_ros.tools.bench.frames import WARM_UP, Frames, resident_mb
from efftam_ros.tools.common.terminal import progress_bar

MODULES = ("image_encoder", "memory_attention", "mask_decoder", "memory_encoder")
# Counted frames per turn: several back to back, but few enough that all contenders see the same machine
# state.
TURN = 5


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
        facts: As `Contender.facts`, with ``start_up_s`` and ``resident_mb``.
    """

    name: str
    bundle: str
    backend: str
    whole: list[float] = field(default_factory=list)
    stages: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    ratios: list[float] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def add(self, whole_s: float, stage_seconds: Mapping[str, float]) -> None:
        self.whole.append(whole_s)
        for name, seconds in stage_seconds.items():
            self.stages[name].append(seconds)
        if all(name in stage_seconds for name in MODULES):
            self.ratios.append(whole_s / sum(stage_seconds[name] for name in MODULES))

    @property
    def whole_ms(self) -> float:
        return 1e3 * float(np.median(self.whole))

    @property
    def medians_ms(self) -> dict[str, float]:
        return {name: 1e3 * float(np.median(seconds)) for name, seconds in self.stages.items()}

    def times_faster(self, all_of_them: Sequence[Timing]) -> dict[str, float]:
        """Speed-up over each of `BASELINES` measured on the same bundle."""
        return {
            other.backend: other.whole_ms / self.whole_ms
            for other in all_of_them
            if other.backend in BASELINES and other.bundle == self.bundle
        }

    def record(self, all_of_them: Sequence[Timing]) -> dict[str, Any]:
        """The figures written by --json. ``relative``: to the first contender of the run;
        ``incomplete_frames``: those that did not run all four modules, 0 for a peer."""
        return {
            "name": self.name,
            "bundle": self.bundle,
            "backend": self.backend,
            "frames": len(self.whole),
            "whole_ms": self.whole_ms,
            "whole_p99_ms": 1e3 * float(np.percentile(self.whole, 99)),
            "stages_ms": self.medians_ms,
            "relative": self.whole_ms / all_of_them[0].whole_ms,
            "glue_ratio": float(np.median(self.ratios)) if self.ratios else None,
            "incomplete_frames": 0 if self.backend == PEER else len(self.whole) - len(self.ratios),
            "times_faster_than": self.times_faster(all_of_them),
            **self.facts,
        }


def measure_frames(
    contenders: Sequence[Contender], frames: Frames, count: int, *, quiet: bool = False
) -> list[Timing]:
    """Warm up each contender, then measure ``count`` frames of each in turns of `TURN`, in rotating order.

    All contenders get the same frames.
    """
    timings = [Timing(c.name, c.bundle, c.backend) for c in contenders]
    pairs = list(zip(contenders, timings, strict=True))
    with progress_bar((count + WARM_UP) * len(pairs), "compare", quiet=quiet) as bar:
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
                    start = time.perf_counter()
                    stages = contender.step(frame, prompt)
                    timing.add(time.perf_counter() - start, stages)
                    bar.update()
    for contender, timing in pairs:
        timing.facts = contender.facts() | {
            "start_up_s": contender.start_up_s,
            "resident_mb": contender.resident_mb,
        }
    return timings
