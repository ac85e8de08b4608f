"""The velocity of a target of known motion, with jitter and dropped frames."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.scripted_pipeline import ScriptedPipeline

from efftam_ros.core.geometry import Box
from efftam_ros.core.tracker import TargetTracker
from efftam_ros.core.types import Frame, Image, Prompt
from simulation.null_pipeline import certain_candidate

VELOCITY = (160.0, 90.0)  # px/s
JITTER_PX, FPS, SECONDS, SETTLE_S, RUNS = 2.0, 30.0, 3.0, 0.5, 20
MOST_ERROR = 0.05


def errors(seed: int, dropped: float) -> tuple[float, float]:
    """Relative error at the first frame from 0.5 s on, and the mean from there to the end."""
    rng = np.random.default_rng(seed)
    kept = [i for i in range(round(SECONDS * FPS)) if i == 0 or rng.random() >= dropped]
    seen = [
        Box.from_centre(300 + VELOCITY[0] * i / FPS, 200 + VELOCITY[1] * i / FPS, 48.0, 32.0).moved(
            *rng.uniform(-JITTER_PX, JITTER_PX, 2)
        )
        for i in kept
    ]
    tracker = TargetTracker(ScriptedPipeline(lambda frame, view: certain_candidate(seen[frame])))
    image = Image.from_array(np.zeros((720, 1280), np.uint8), "mono8")
    found = []
    for count, index in enumerate(kept):
        frame = Frame(image, 10**9 + round(index * 1e9 / FPS))
        track = tracker.step(frame, Prompt(box=seen[0]) if count == 0 else None)
        if index / FPS >= SETTLE_S:
            velocity = (math.nan, math.nan) if track.motion is None else track.motion.velocity
            found.append(math.dist(velocity, VELOCITY) / math.hypot(*VELOCITY))
    return found[0], float(np.mean(found))


@pytest.mark.parametrize("dropped", [0.0, 0.3])
def test_the_velocity_is_within_5_percent_after_half_a_second(dropped: float) -> None:
    at_half_a_second, after = np.median([errors(seed, dropped) for seed in range(RUNS)], axis=0)
    assert at_half_a_second <= MOST_ERROR
    assert after <= MOST_ERROR
