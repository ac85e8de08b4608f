"""The two reference policies, reproduced exactly, as baselines for golden tests and comparisons.

They never search the whole image: a lost target is looked for in one window per frame. They use neither
camera motion nor point tracks nor likeness.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.memory import AttendedFrames, Record
from efftam_ros.core.policies.base import (
    Choice,
    FrameContext,
    Policy,
    accept_if_visible,
    best_quality,
)
from efftam_ros.core.types import Candidates, PipelineSpec
from efftam_workshop.policies.samurai_filter import ReferenceSelector, SamuraiConfig


@dataclass(frozen=True)
class RecentFrames:
    """The reference predictor's choice of the frames that are attended to.

    Maps: the prompted frame in the last row, then the six previous frames by age; the row of a missing frame
    stays empty. Pointers: the prompted frame and the last fifteen frames, newest first. ``temporal_rows`` and
    ``max_pointers`` are the network's.
    """

    temporal_rows: int = 7
    max_pointers: int = 16

    def attention(self, records: Sequence[Record], frame: int) -> AttendedFrames:
        prompted = [r.frame for r in records if r.prompted]
        tracked = {r.frame for r in records if not r.prompted}
        maps = [(f, self.temporal_rows - 1) for f in prompted]
        maps += [(frame - d, d - 1) for d in range(self.temporal_rows - 1, 0, -1) if frame - d in tracked]
        pointers = [frame - d for d in range(1, self.max_pointers) if frame - d in tracked]
        return AttendedFrames(tuple(maps), tuple(prompted + pointers))

    def needed(self, records: Sequence[Record], frame: int) -> set[int]:
        oldest = frame - max(self.max_pointers, self.temporal_rows) + 1
        return {r.frame for r in records if r.prompted or r.frame >= oldest}


class ReferencePolicy(Policy):
    """Common part of the reference policies. They use the whole image: view ``auto`` becomes ``full``."""

    def view(self, default: str) -> str:
        return "full" if default == "auto" else default


class EfficientTamPolicy(ReferencePolicy):
    """The reference predictor.

    It chooses the candidate with the highest predicted IoU, stores every frame in memory, and attends to the
    frames that `RecentFrames` chooses.
    """

    def __init__(self, spec: PipelineSpec, config: TrackerConfig) -> None:
        super().__init__(RecentFrames(spec.temporal_rows, spec.max_pointers), config)

    def choose(self, candidates: Candidates, context: FrameContext) -> Choice:
        best = best_quality(candidates)
        present = candidates.presence_logit > 0
        return accept_if_visible(candidates, best, present)


@dataclass(frozen=True)
class SamuraiFrames:
    """SAMURAI's choice of the frames that are attended to.

    Maps: the prompted frames, then the last six frames with good scores and always the previous frame. Their
    rows are assigned by rank, not by age. Pointers: the last frames regardless of scores. As in the
    reference, frames 0 and 1 never count as frames with good scores.
    """

    config: SamuraiConfig = field(default_factory=SamuraiConfig)

    def _valid(self, records: Iterable[Record]) -> list[int]:
        c = self.config
        return [
            r.frame
            for r in records
            if r.frame >= 2
            and r.quality > c.memory_iou
            and r.presence_logit > c.memory_presence_logit
            and (r.motion_iou is None or r.motion_iou > c.memory_motion_iou)
        ]

    def attention(self, records: Sequence[Record], frame: int) -> AttendedFrames:
        c = self.config
        prompted = [r.frame for r in records if r.prompted]
        valid = sorted(self._valid(r for r in records if r.frame < frame))[-(c.max_pointers - 1) :]
        if frame - 1 not in valid:
            valid.append(frame - 1)
        rows = enumerate(reversed(valid[-(c.max_maps - 1) :]))
        known = {r.frame for r in records}
        maps = [(f, row) for row, f in rows if f in known and not (f == frame - 1 and f in prompted)]
        pointers = [f for f in prompted if f <= frame]
        pointers += [
            frame - d for d in range(1, c.max_pointers) if frame - d in known and frame - d not in prompted
        ]
        return AttendedFrames((*((f, c.max_maps - 1) for f in prompted), *reversed(maps)), tuple(pointers))

    def needed(self, records: Sequence[Record], frame: int) -> set[int]:
        keep = {r.frame for r in records if r.prompted or r.frame > frame - self.config.max_pointers}
        return keep | set(sorted(self._valid(records))[-(self.config.max_maps - 1) :])


class SamuraiPolicy(ReferencePolicy):
    """SAMURAI's reference policy.

    Its motion filter, in network pixels, chooses the candidate. Its scores decide which frames are attended
    to.
    """

    def __init__(self, spec: PipelineSpec, config: TrackerConfig) -> None:
        self._samurai = SamuraiConfig(max_maps=spec.temporal_rows, max_pointers=spec.max_pointers)
        self.selector = ReferenceSelector(self._samurai)
        super().__init__(SamuraiFrames(self._samurai), config)

    def reset(self) -> None:
        self.selector = ReferenceSelector(self._samurai)

    def choose(self, candidates: Candidates, context: FrameContext) -> Choice:
        present = candidates.presence_logit > self._samurai.min_presence_logit
        if len(candidates) == 1:
            return accept_if_visible(candidates, 0, present)
        assert context.view is not None
        boxes = [context.view.to_network(candidates.box(i)) for i in range(len(candidates))]
        edges = np.array([(0.0, 0.0, 0.0, 0.0) if b.is_empty else b.edges() for b in boxes])
        chosen = self.selector.choose(edges, candidates.ious.astype(np.float64), candidates.presence_logit)
        return accept_if_visible(candidates, chosen.index, present, chosen.motion_iou)
