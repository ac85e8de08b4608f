"""A target that the network sees as a script says, followed by the tracker."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.contract import Pipeline
from efftam_ros.core.geometry import Box
from efftam_ros.core.targets import TargetSet
from efftam_ros.core.types import Candidates, Frame, Image, PipelineSpec, Prompt, Track
from efftam_ros.runtime.opening import policy_of
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


class OneTarget:
    """A set of targets with one target, whose tracker's attributes it has."""

    def __init__(self, targets: TargetSet) -> None:
        self.targets, self._tracker = targets, targets._free[-1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tracker, name)

    def step(self, frame: Frame, prompt: Prompt | None = None) -> Track:
        """The target's answer to an image; with a prompt it is selected there."""
        ((_, track, *_),) = self.targets.step(frame, {} if prompt is None else {0: prompt})
        return track

    def remember(self) -> None:
        self.targets.remember()

    def propose(self, frame: Frame, prompt: Prompt) -> Box | None:
        return self.targets.propose(frame, prompt)

    def clear(self) -> None:
        self.targets.clear()


def one_target(pipeline: Pipeline, config: TrackerConfig | None = None, **how: Any) -> OneTarget:
    """One target on a pipeline. The arguments are those of `TargetSet`."""
    how["make_policy"] = policy_of((config or TrackerConfig()).policy)
    return OneTarget(TargetSet(pipeline, config, **how))


def followed(
    script: Script,
    frames: int | Iterable[float],
    prompt: Prompt,
    config: TrackerConfig | None = None,
    picture: np.ndarray = PICTURE,
    spec: PipelineSpec = SPEC,
    **how: object,
) -> tuple[list[Track], OneTarget, ScriptedPipeline]:
    """Track through a script; ``frames``: how many, or when they come, in 1/30 s. The first one is prompted.
    The full view, by default."""
    pipeline = ScriptedPipeline(script, spec)
    tracker, tracks = one_target(pipeline, config or TrackerConfig(view="full"), **how), []
    for i, at in enumerate(range(frames) if isinstance(frames, int) else frames):
        tracks.append(tracker.step(frame(at, picture), None if i else prompt))
    return tracks, tracker, pipeline
