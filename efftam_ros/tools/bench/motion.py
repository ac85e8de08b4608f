"""Velocity error of the tracker on a target with known motion, with jitter and dropped frames."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from efftam_ros.core.geometry import Box, View
from efftam_ros.core.tracker import Tracker
from efftam_ros.core.types import Candidates, Frame, Image, Prompt
from efftam_ros.runtime.null_pipeline import certain_candidate
from efftam_ros.tools.bench.scripted_pipeline import ScriptedPipeline
from efftam_ros.tools.common.video import NS

VELOCITY = (160.0, 90.0)  # px/s
SIZE = (48.0, 32.0)  # px
JITTER_PX = 2.0
FPS = 30.0
SECONDS = 3.0
SETTLE_S = 0.5
RUNS = 40
LOST_SHARE = 0.3


def measure_motion(dropped: float) -> dict[str, float]:
    """Measure the relative velocity error |v - true| / |true| of a target with constant velocity.

    Its box has a uniform jitter of up to 2 px in x and y. ``dropped``: share of dropped frames, 0..1. Returns
    ``error_at_half_second`` and ``error_after`` (mean from 0.5 s to 3 s), each the median over `RUNS` seeds.
    """
    errors = np.array([_one_run(seed, dropped) for seed in range(RUNS)])
    at, after = np.median(errors, axis=0)
    return {
        "dropped": dropped,
        "error_at_half_second": float(at),
        "error_after": float(after),
        "speed_px_s": math.hypot(*VELOCITY),
        "fps": FPS,
        "runs": RUNS,
    }


def _one_run(seed: int, dropped: float) -> tuple[float, float]:
    """Error at the first frame from 0.5 s on, and mean error from there to the end."""
    rng = np.random.default_rng(seed)
    kept = [i for i in range(round(SECONDS * FPS)) if i == 0 or rng.random() >= dropped]
    seen = [_true_box(i / FPS).moved(*rng.uniform(-JITTER_PX, JITTER_PX, 2)) for i in kept]

    def script(frame: int, view: View) -> Candidates:
        return certain_candidate(seen[frame])

    tracker = Tracker(ScriptedPipeline(script))
    image = Image.from_array(np.zeros((720, 1280), np.uint8), "mono8")
    errors = []
    for count, index in enumerate(kept):
        frame = Frame(image, NS + round(index * NS / FPS))
        track = tracker.step(frame, Prompt(box=seen[0]) if count == 0 else None)
        if index / FPS >= SETTLE_S:
            velocity: Any = (math.nan, math.nan) if track.motion is None else track.motion.velocity
            errors.append(math.dist(velocity, VELOCITY) / math.hypot(*VELOCITY))
    return errors[0], float(np.mean(errors))


def _true_box(t: float) -> Box:
    return Box.from_centre(300 + VELOCITY[0] * t, 200 + VELOCITY[1] * t, *SIZE)
