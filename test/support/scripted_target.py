"""A target that the network sees as a script says, followed by the tracker."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.geometry import Box
from efftam_ros.core.tracker import TargetTracker
from efftam_ros.core.types import Candidates, Frame, Image, PipelineSpec, Prompt, Track
from support.scripted_pipeline import Script, ScriptedPipeline

FPS, SECOND = 30, 1_000_000_000
PICTURE = np.zeros((1024, 1024, 3), np.uint8)
SPEC = PipelineSpec(name="scripted", image_side=1024)


def candidates(
    *boxes: Box | None, ious: Sequence[float] | None = None, presence_logit: float = 5.0
) -> Candidates:
    """Full masks of these boxes; None: an empty one."""
    edges = np.array([box.edges() if box else (np.nan,) * 4 for box in boxes], np.float32)
    areas = np.array([box.area if box else 0 for box in boxes], np.float32)
    scores = np.array(ious or [0.9, 0.6, 0.5][: len(boxes)], np.float32)
    return Candidates(edges, areas, scores, presence_logit)


def frame(i: float, picture: np.ndarray = PICTURE) -> Frame:
    """The image of the time i / 30 s."""
    return Frame(Image.from_array(picture), SECOND + round(i * SECOND / FPS))


def followed(
    script: Script,
    frames: int | Iterable[float],
    prompt: Prompt,
    config: TrackerConfig | None = None,
    picture: np.ndarray = PICTURE,
    spec: PipelineSpec = SPEC,
    **how: object,
) -> tuple[list[Track], TargetTracker, ScriptedPipeline]:
    """Track through a script; ``frames``: how many, or when they come, in 1/30 s. The first one is prompted.
    The full view, by default."""
    pipeline = ScriptedPipeline(script, spec)
    tracker, tracks = TargetTracker(pipeline, config or TrackerConfig(view="full"), **how), []  # type: ignore[arg-type]
    for i, at in enumerate(range(frames) if isinstance(frames, int) else frames):
        tracks.append(tracker.step(frame(at, picture), None if i else prompt))
    return tracks, tracker, pipeline
