"""Policies: which candidate mask is the target, whether it counts, and what is remembered.

Three behind one interface. `EfficientTamPolicy` and `SamuraiPolicy` are the references, exactly: baselines
for golden tests and comparisons. `DefaultPolicy` is ours.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.geometry import Box, View, iou
from efftam_ros.core.memory import MemoryBank, RankedFrames, RecentFrames, Record, SamuraiFrames
from efftam_ros.core.motion import MotionFilter
from efftam_ros.core.samurai import ReferenceSelector, SamuraiConfig
from efftam_ros.core.types import Candidates, MemoryPlan, PipelineSpec, TrackState


@dataclass(frozen=True)
class Situation:
    """What is known about a frame before its candidates are judged. ``motion`` is predicted to the frame's
    stamp, None when nothing is believed; ``last_box`` the last measured box."""

    stamp_ns: int
    view: View
    state: TrackState
    motion: MotionFilter | None
    last_box: Box | None


@dataclass(frozen=True)
class Choice:
    """A policy's verdict. ``accepted``: the box counts as measured; ``present``: what the memory is told;
    ``reason``: why it was not accepted, one line; ``motion_iou``: overlap with the predicted box where the
    policy looks at it."""

    index: int
    present: bool
    accepted: bool
    reason: str = ""
    motion_iou: float | None = None


class Policy(Protocol):
    """Per frame: `plan`, then `choose` (or `begin` on a prompted frame), then `finish`, exactly once each.
    ``config`` may be replaced between frames."""

    config: TrackerConfig

    def reset(self) -> None:
        """Forget everything: a new target."""
        ...

    def plan(self) -> MemoryPlan:
        """What the coming frame attends to."""
        ...

    def begin(self, candidates: Candidates, situation: Situation) -> Choice:
        """Judge a prompted frame."""
        ...

    def choose(self, candidates: Candidates, situation: Situation) -> Choice:
        """Judge a tracked frame. The candidates are finite."""
        ...

    def finish(
        self, candidates: Candidates, choice: Choice, situation: Situation, confirmed: bool
    ) -> int | None:
        """Close the frame; the ring slot it is to be remembered in, None when it is not. ``confirmed``: the
        state after this frame claims the target (first frames of a selection, or TRACKING)."""
        ...

    def skip(self) -> None:
        """Close a frame that gave no usable candidates."""
        ...


def _best(candidates: Candidates) -> int:
    return int(np.argmax(candidates.ious))


class _Remembering:
    """Frame counter and memory bank, common to the policies."""

    def __init__(self, bank: MemoryBank, config: TrackerConfig) -> None:
        self._empty, self.config = bank, config
        self.reset()

    def reset(self) -> None:
        self._bank = MemoryBank(self._empty.rule, self._empty.size)
        self._frame = 0
        self._prompted = False

    def plan(self) -> MemoryPlan:
        return self._bank.plan(self._frame)

    def skip(self) -> None:
        self._frame += 1
        self._prompted = False

    def _store(self, candidates: Candidates, choice: Choice, anchor: bool = False) -> int:
        slot = self._bank.add(
            Record(
                self._frame,
                self._prompted,
                float(candidates.ious[choice.index]),
                candidates.presence_logit,
                choice.motion_iou,
                anchor,
            )
        )
        self.skip()
        return slot


class EfficientTamPolicy(_Remembering):
    """The reference predictor: highest predicted IoU, every frame remembered, the last six attended to."""

    def __init__(self, spec: PipelineSpec, config: TrackerConfig) -> None:
        super().__init__(MemoryBank(RecentFrames(spec.temporal_rows, spec.max_pointers), spec.slots), config)

    def begin(self, candidates: Candidates, situation: Situation) -> Choice:
        self._prompted = True
        return self.choose(candidates, situation)

    def choose(self, candidates: Candidates, situation: Situation) -> Choice:
        best = _best(candidates)
        present = candidates.presence_logit > 0
        return _plainly(candidates, best, present)

    def finish(
        self, candidates: Candidates, choice: Choice, situation: Situation, confirmed: bool
    ) -> int | None:
        return self._store(candidates, choice)


class SamuraiPolicy(_Remembering):
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
            return _plainly(candidates, 0, present)
        boxes = [situation.view.to_network(candidates.box(i)) for i in range(len(candidates))]
        edges = np.array([(0.0, 0.0, 0.0, 0.0) if b.is_empty else b.edges() for b in boxes])
        chosen = self.selector.choose(edges, candidates.ious.astype(np.float64), candidates.presence_logit)
        return _plainly(candidates, chosen.index, present, chosen.motion_iou)

    def finish(
        self, candidates: Candidates, choice: Choice, situation: Situation, confirmed: bool
    ) -> int | None:
        return self._store(candidates, choice)


def _plainly(candidates: Candidates, index: int, present: bool, motion_iou: float | None = None) -> Choice:
    """Accept whatever is present and not empty."""
    reason = ""
    if not present:
        reason = _unseen(candidates)
    elif candidates.box(index).is_empty:
        reason = "the mask is empty"
    return Choice(index, present, not reason, reason, motion_iou)


def _unseen(candidates: Candidates) -> str:
    return f"the network does not see the target (presence {candidates.presence:.2f})"


class DefaultPolicy(_Remembering):
    """Ours. Presence first: an absent target is neither measured nor remembered, whatever the IoUs say. Then
    the candidate with the best predicted IoU plus a share of its overlap with the predicted box. Then the
    gate: a candidate that lies neither within the filter's uncertainty nor on the predicted box is another
    object, and nothing is updated or remembered from it. Only confirmed frames of good quality enter the
    memory; some become anchors (DAM4SAM)."""

    MAX_AREA_RATIO = 4.0  # of a re-found target to the last measured one, either way
    ANCHOR_QUALITY = 0.8
    ANCHOR_UNION_IOU = 0.7
    ANCHOR_AREA_BAND = 0.2
    ANCHOR_INTERVAL_NS = 200_000_000

    def __init__(self, spec: PipelineSpec, config: TrackerConfig) -> None:
        rule = RankedFrames(
            temporal_rows=spec.temporal_rows,
            recent=spec.recent_maps,
            max_maps=spec.max_maps or spec.temporal_rows,
            max_pointers=spec.max_pointers,
            anchors=config.anchors,
        )
        super().__init__(MemoryBank(rule, spec.slots), config)

    def reset(self) -> None:
        super().reset()
        self._areas: deque[float] = deque(maxlen=10)
        self._anchored_ns: int | None = None

    def begin(self, candidates: Candidates, situation: Situation) -> Choice:
        self._prompted = True
        # The operator says that the target is here: presence does not overrule a selection.
        return _plainly(candidates, _best(candidates), present=True)

    def choose(self, candidates: Candidates, situation: Situation) -> Choice:
        boxes = [candidates.box(i) for i in range(len(candidates))]
        motion = situation.motion
        overlaps = [iou(b, motion.box) if motion else 0.0 for b in boxes]
        scores = [
            -np.inf if b.is_empty else q + self.config.motion_weight * o
            for b, q, o in zip(boxes, candidates.ious, overlaps, strict=True)
        ]
        best = int(np.argmax(scores))
        box, overlap = boxes[best], overlaps[best]
        if candidates.presence < self.config.presence_threshold:
            return Choice(best, False, False, _unseen(candidates), overlap)
        if box.is_empty:
            return Choice(best, False, False, "every mask is empty", overlap)
        reason = self._implausible(box, float(candidates.ious[best]), overlap, situation)
        return Choice(best, True, not reason, reason, overlap)

    def _implausible(self, box: Box, quality: float, overlap: float, situation: Situation) -> str:
        motion, last = situation.motion, situation.last_box
        if motion is not None:
            distance, gate = motion.mahalanobis(box, quality), self.config.gate_mahalanobis
            if distance > gate and overlap < self.config.gate_iou:
                return (
                    f"seen where it cannot be (distance^2 {distance:.0f} above {gate:g}, "
                    f"overlap {overlap:.2f} below {self.config.gate_iou:g})"
                )
        if situation.state in (TrackState.COASTING, TrackState.LOST) and last is not None:
            ratio = box.area / last.area
            if not 1 / self.MAX_AREA_RATIO < ratio < self.MAX_AREA_RATIO:
                return f"seen at {ratio:.2g} times its last area"
            if quality < self.config.memory_quality:
                return f"seen unclearly (predicted IoU {quality:.2f} below {self.config.memory_quality:g})"
        return ""

    def finish(
        self, candidates: Candidates, choice: Choice, situation: Situation, confirmed: bool
    ) -> int | None:
        quality = float(candidates.ious[choice.index])
        good = choice.accepted and confirmed and quality > self.config.memory_quality
        if not (good or self._prompted):
            self.skip()
            return None
        anchor = not self._prompted and self._is_anchor(candidates, choice, quality, situation.stamp_ns)
        self._areas.append(float(candidates.areas[choice.index]))
        return self._store(candidates, choice, anchor)

    def _is_anchor(self, candidates: Candidates, choice: Choice, quality: float, stamp_ns: int) -> bool:
        """A clear view of the target at its usual size while another candidate reaches elsewhere: a
        look-alike was told apart, which is worth keeping."""
        if self.config.anchors == 0 or quality <= self.ANCHOR_QUALITY or len(self._areas) < 5:
            return False
        if self._anchored_ns is not None and stamp_ns - self._anchored_ns < self.ANCHOR_INTERVAL_NS:
            return False
        usual = float(np.median(self._areas))
        if abs(float(candidates.areas[choice.index]) / usual - 1) > self.ANCHOR_AREA_BAND:
            return False
        box = candidates.box(choice.index)
        others = [candidates.box(i) for i in range(len(candidates)) if i != choice.index]
        told_apart = any(not o.is_empty and iou(box.union(o), box) <= self.ANCHOR_UNION_IOU for o in others)
        if told_apart:
            self._anchored_ns = stamp_ns
        return told_apart


def make_policy(spec: PipelineSpec, config: TrackerConfig) -> Policy:
    """The policy that ``config.policy`` names."""
    classes = {"default": DefaultPolicy, "samurai": SamuraiPolicy, "efficienttam": EfficientTamPolicy}
    return classes[config.policy](spec, config)
