"""The two reference policies, exactly: baselines for golden tests and for comparisons."""

from __future__ import annotations

import numpy as np

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.memory import MemoryBank, RecentFrames, SamuraiFrames
from efftam_ros.core.policies.base import Choice, RememberingPolicy, Situation, best_quality, plainly
from efftam_ros.core.policies.samurai_filter import ReferenceSelector, SamuraiConfig
from efftam_ros.core.types import Candidates, PipelineSpec


class EfficientTamPolicy(RememberingPolicy):
    """The reference predictor: highest predicted IoU, every frame remembered, the last six attended to."""

    def __init__(self, spec: PipelineSpec, config: TrackerConfig) -> None:
        super().__init__(MemoryBank(RecentFrames(spec.temporal_rows, spec.max_pointers), spec.slots), config)

    def begin(self, candidates: Candidates, situation: Situation) -> Choice:
        self._prompted = True
        return self.choose(candidates, situation)

    def choose(self, candidates: Candidates, situation: Situation) -> Choice:
        best = best_quality(candidates)
        present = candidates.presence_logit > 0
        return plainly(candidates, best, present)

    def finish(
        self, candidates: Candidates, choice: Choice, situation: Situation, confirmed: bool
    ) -> int | None:
        return self._store(candidates, choice)


class SamuraiPolicy(RememberingPolicy):
    """SAMURAI's reference: its filter in network pixels chooses, its scores decide what is attended to."""

    def __init__(
        self, spec: PipelineSpec, config: TrackerConfig, samurai: SamuraiConfig | None = None
    ) -> None:
        self._samurai = samurai or SamuraiConfig(max_maps=spec.temporal_rows, max_pointers=spec.max_pointers)
        self.selector = ReferenceSelector(self._samurai)
        super().__init__(MemoryBank(SamuraiFrames(self._samurai), spec.slots), config)

    def reset(self) -> None:
        super().reset()
        self.selector = ReferenceSelector(self._samurai)

    def begin(self, candidates: Candidates, situation: Situation) -> Choice:
        self._prompted = True
        return self.choose(candidates, situation)

    def choose(self, candidates: Candidates, situation: Situation) -> Choice:
        present = candidates.presence_logit > self._samurai.min_presence_logit
        if len(candidates) == 1:
            return plainly(candidates, 0, present)
        boxes = [situation.view.to_network(candidates.box(i)) for i in range(len(candidates))]
        edges = np.array([(0.0, 0.0, 0.0, 0.0) if b.is_empty else b.edges() for b in boxes])
        chosen = self.selector.choose(edges, candidates.ious.astype(np.float64), candidates.presence_logit)
        return plainly(candidates, chosen.index, present, chosen.motion_iou)

    def finish(
        self, candidates: Candidates, choice: Choice, situation: Situation, confirmed: bool
    ) -> int | None:
        return self._store(candidates, choice)
