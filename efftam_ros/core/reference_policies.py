"""The two reference policies, reproduced exactly, as baselines for golden tests and comparisons."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.memory import RecentFrames, SamuraiFrames
from efftam_ros.core.policies.base import (
    Choice,
    FrameContext,
    RememberingPolicy,
    accept_if_visible,
    best_quality,
)
from efftam_ros.core.policies.samurai_filter import ReferenceSelector, SamuraiConfig
from efftam_ros.core.types import Candidates, PipelineSpec


class ReferencePolicy(RememberingPolicy):
    """Judges a prompted frame like any other, and remembers every frame."""

    def begin(self, candidates: Candidates, context: FrameContext) -> Choice:
        self.memory.prompted = True
        return self.choose(candidates, context)

    @abstractmethod
    def choose(self, candidates: Candidates, context: FrameContext) -> Choice:
        """See `Policy.choose`."""

    def finish(
        self, candidates: Candidates, choice: Choice, context: FrameContext, confirmed: bool
    ) -> int | None:
        quality = float(candidates.ious[choice.index])
        return self.memory.store(quality, candidates.presence_logit, choice.motion_iou)


class EfficientTamPolicy(ReferencePolicy):
    """The reference predictor: highest predicted IoU, every frame remembered, attention to the last six."""

    def __init__(self, spec: PipelineSpec, config: TrackerConfig) -> None:
        super().__init__(RecentFrames(spec.temporal_rows, spec.max_pointers), spec.slots, config)

    def choose(self, candidates: Candidates, context: FrameContext) -> Choice:
        best = best_quality(candidates)
        present = candidates.presence_logit > 0
        return accept_if_visible(candidates, best, present)


class SamuraiPolicy(ReferencePolicy):
    """SAMURAI's reference: its filter in network pixels chooses, its scores decide which frames are attended
    to."""

    def __init__(
        self, spec: PipelineSpec, config: TrackerConfig, samurai: SamuraiConfig | None = None
    ) -> None:
        self._samurai = samurai or SamuraiConfig(max_maps=spec.temporal_rows, max_pointers=spec.max_pointers)
        self.selector = ReferenceSelector(self._samurai)
        super().__init__(SamuraiFrames(self._samurai), spec.slots, config)

    def reset(self) -> None:
        super().reset()
        self.selector = ReferenceSelector(self._samurai)

    def choose(self, candidates: Candidates, context: FrameContext) -> Choice:
        present = candidates.presence_logit > self._samurai.min_presence_logit
        if len(candidates) == 1:
            return accept_if_visible(candidates, 0, present)
        boxes = [context.view.to_network(candidates.box(i)) for i in range(len(candidates))]
        edges = np.array([(0.0, 0.0, 0.0, 0.0) if b.is_empty else b.edges() for b in boxes])
        chosen = self.selector.choose(edges, candidates.ious.astype(np.float64), candidates.presence_logit)
        return accept_if_visible(candidates, chosen.index, present, chosen.motion_iou)
