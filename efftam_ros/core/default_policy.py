"""The default policy: presence first, then plausible motion, then memory."""

from __future__ import annotations

from collections import deque

import numpy as np

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.geometry import Box, iou
from efftam_ros.core.memory import MemoryBank, RankedFrames
from efftam_ros.core.motion import MotionFilter
from efftam_ros.core.selection import Choice, RememberingPolicy, Situation, best_quality, plainly, unseen
from efftam_ros.core.types import Candidates, PipelineSpec, TrackState


class DefaultPolicy(RememberingPolicy):
    """Ours, in this order.

    1. Presence: an absent target is neither measured nor remembered, whatever the IoUs say.
    2. The gate: a candidate that lies neither within the motion filter's uncertainty nor on the predicted box
       is another object; after a gap also one of quite another size, or seen unclearly.
    3. Among the candidates that pass, the best predicted IoU plus a share of the overlap with the predicted
       box. With none, the frame is not measured: nothing is updated or remembered from it.
    4. A candidate that fails the gate in the same way for ``reacquire_frames`` frames, following a motion of
       its own, is the target after a jump of the camera: it is accepted, and the motion starts anew.
    5. Only confirmed frames of good quality are remembered.
    """

    MAX_AREA_RATIO = 2.0  # of a re-found target to the last measured one, either way
    CLEAR_SHARE = 0.5  # of its usual predicted IoU: small targets never reach that of large ones

    def __init__(self, spec: PipelineSpec, config: TrackerConfig) -> None:
        rule = RankedFrames(
            temporal_rows=spec.temporal_rows,
            recent=spec.recent_maps,
            max_maps=spec.max_maps or spec.temporal_rows,
            max_pointers=spec.max_pointers,
        )
        super().__init__(MemoryBank(rule, spec.slots), config)

    def reset(self) -> None:
        super().reset()
        self._areas: deque[float] = deque(maxlen=30)  # of the last remembered frames, image px^2
        self._qualities: deque[float] = deque(maxlen=30)
        self._elsewhere: MotionFilter | None = None  # where a rejected candidate keeps being seen
        self._elsewhere_frames = 0

    def begin(self, candidates: Candidates, situation: Situation) -> Choice:
        self._prompted = True
        # The operator says that the target is here: presence does not overrule a selection.
        return plainly(candidates, best_quality(candidates), present=True)

    def choose(self, candidates: Candidates, situation: Situation) -> Choice:
        if candidates.presence < self.config.presence_threshold:
            self._elsewhere = None
            return Choice(best_quality(candidates), False, False, unseen(candidates))
        ranked = self._ranked(candidates, situation.motion)
        if not ranked:
            self._elsewhere = None
            return Choice(best_quality(candidates), False, False, "every mask is empty")
        reasons = []
        for index, box, overlap in ranked:
            reason = self._implausible(box, float(candidates.ious[index]), overlap, situation)
            if not reason:
                self._elsewhere = None
                return Choice(index, True, True, motion_iou=overlap)
            reasons.append(reason)
        index, box, overlap = ranked[0]
        if self._keeps_being_seen(box, float(candidates.ious[index]), situation):
            return Choice(index, True, True, "the target jumped", overlap, jumped=True)
        return Choice(index, True, False, reasons[0], overlap)

    def _ranked(self, candidates: Candidates, motion: MotionFilter | None) -> list[tuple[int, Box, float]]:
        """Non-empty candidates with their box and overlap with the predicted box, best first."""
        found = []
        for index in range(len(candidates)):
            box = candidates.box(index)
            if not box.is_empty:
                overlap = iou(box, motion.box) if motion is not None else 0.0
                score = float(candidates.ious[index]) + self.config.motion_weight * overlap
                found.append((score, index, box, overlap))
        found.sort(key=lambda item: (-item[0], item[1]))
        return [(index, box, overlap) for _, index, box, overlap in found]

    def _implausible(self, box: Box, quality: float, overlap: float, situation: Situation) -> str:
        """Why a candidate cannot be the target; empty when it can."""
        motion = situation.motion
        if motion is not None:
            distance, gate = motion.mahalanobis(box, quality), self.config.gate_mahalanobis
            if distance > gate and overlap < self.config.gate_iou:
                return (
                    f"seen where it cannot be (distance^2 {distance:.0f} above {gate:g}, "
                    f"overlap {overlap:.2f} below {self.config.gate_iou:g})"
                )
        if situation.state in (TrackState.COASTING, TrackState.LOST):
            return self._unlike(box, quality)
        return ""

    def _unlike(self, box: Box, quality: float) -> str:
        """Why a candidate does not look like the target before the gap; empty when it does."""
        if not self._areas:
            return ""  # the network has not seen the target yet: anything may be it
        # The median: the last boxes before an occlusion show only what was left of the target.
        ratio = box.area / float(np.median(self._areas))
        if not 1 / self.MAX_AREA_RATIO < ratio < self.MAX_AREA_RATIO:
            return f"seen at {ratio:.2g} times its usual area"
        least = self.CLEAR_SHARE * float(np.median(self._qualities))
        if quality < least:
            return f"seen unclearly (predicted IoU {quality:.2f} below {least:.2f})"
        return ""

    def _keeps_being_seen(self, box: Box, quality: float, situation: Situation) -> bool:
        """True when a rejected candidate has moved consistently for ``reacquire_frames`` frames."""
        # Once LOST, time alone widens the gate: far from the prediction the search finds look-alikes.
        if situation.state is TrackState.LOST or self._unlike(box, quality):
            self._elsewhere = None
            return False
        if self._elsewhere is not None:
            self._elsewhere.predict(situation.stamp_ns)
            if self._elsewhere.mahalanobis(box, quality) <= self.config.gate_mahalanobis:
                self._elsewhere.update(box, quality)
                self._elsewhere_frames += 1
            else:
                self._elsewhere = None
        if self._elsewhere is None:
            self._elsewhere, self._elsewhere_frames = MotionFilter(situation.stamp_ns, box), 1
        if self._elsewhere_frames < self.config.reacquire_frames:
            return False
        self._elsewhere = None
        return True

    def finish(
        self, candidates: Candidates, choice: Choice, situation: Situation, confirmed: bool
    ) -> int | None:
        quality = float(candidates.ious[choice.index])
        good = choice.accepted and confirmed and quality > self.config.memory_quality
        if not (good or self._prompted):
            self.skip()
            return None
        if choice.accepted:
            self._areas.append(max(candidates.box(choice.index).area, 1.0))
            self._qualities.append(quality)
        return self._store(candidates, choice)
