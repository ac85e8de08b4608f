"""The default policy: presence first, then plausible motion, then memory."""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.geometry import Box, View, iou
from efftam_ros.core.memory import MemoryBank, RankedFrames
from efftam_ros.core.motion import MotionFilter
from efftam_ros.core.policies.base import (
    Choice,
    FrameContext,
    RememberingPolicy,
    accept_if_visible,
    best_quality,
    unseen,
)
from efftam_ros.core.types import Candidates, PipelineSpec, TrackState


class DefaultPolicy(RememberingPolicy):
    """Ours, in this order.

    1. Presence: an absent target is neither measured nor remembered, whatever the IoUs say.
    2. Clearness: what is seen much less clearly than the target usually is (predicted IoU) is what hides it,
       or the ground where it was. A target that returns must be seen more clearly than one that is followed:
       unsure masks are common while there is nothing to see.
    3. The gate: while it is followed, a candidate that lies neither within the motion filter's uncertainty
       nor on the predicted box is another object. After a gap so is one further away than targets stray from
       a constant velocity in that time, or of quite another size: the filter's own uncertainty, made for any
       manoeuvre, would reach every next_crop-alike in the image.
    4. Among the candidates that pass, the best predicted IoU plus a share of the overlap with the predicted
       box. With none, the frame is not measured: nothing is updated or remembered from it.
    5. A clear candidate that fails the gate but keeps being seen where it is in view, following a motion of
       its own, is the target after a jump of the camera: it is accepted, and the motion starts anew. Once
       the target is gone that takes longer, and the window turns to the candidate meanwhile.
    6. Only confirmed, clear frames of good quality are remembered, and none in which the target is suddenly
       smaller: what slides behind something would leave nothing but its last visible corner in memory.
    """

    MAX_AREA_RATIO = 3.0  # of a re-found target to the last measured one, either way
    # Shares of its usual predicted IoU, as small targets never reach that of large ones.
    SEEN_SHARE = 0.4  # to go on
    CLEAR_SHARE = 0.65  # to be found again
    KEPT_SHARE = 0.7  # to be remembered
    RELOCATION_SHARE = 0.85  # to be found where it was not expected
    # How far from the prediction a target returns, in its sizes: at once, per second of absence, at most.
    STRAY, STRAY_PER_S, STRAY_MOST = 1.25, 1.0, 3.0
    WHOLE_SHARE = 0.5  # of its usual area, to be remembered
    MOVING_SHARE = 0.75  # of its usual area, for its box to tell how the whole target moves
    RELOCATION_FACTOR = 5  # of ``reacquire_frames``, once gone for longer than a jump of the camera takes
    JUMP_S = 0.25  # within this time the target is seen again after a jump of the camera
    USUAL_FRAMES = 60
    MOST_LOOKS = 8  # frames in a row that something in the wrong place is looked at

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
        # Of the last confirmed frames, remembered or not.
        self._qualities: deque[float] = deque(maxlen=self.USUAL_FRAMES)
        self._confirmed_areas: deque[float] = deque(maxlen=self.USUAL_FRAMES)
        self._confirmed, self._confirmed_ns = True, 0  # whether the last frame was, and the last that was
        self._relocation: MotionFilter | None = None  # where a rejected candidate keeps being seen
        self._relocation_frames = 0
        self._looks = 0  # frames spent on it

    def begin(self, candidates: Candidates, context: FrameContext) -> Choice:
        self._prompted = True
        # The operator says that the target is here: presence does not overrule a selection.
        return accept_if_visible(candidates, best_quality(candidates), present=True)

    def choose(self, candidates: Candidates, context: FrameContext) -> Choice:
        self._confirmed &= context.state not in (TrackState.COASTING, TrackState.LOST)
        if candidates.presence < self.config.presence_threshold:
            self._drop_relocation(context)
            return Choice(best_quality(candidates), False, False, unseen(candidates))
        ranked = self._ranked(candidates, context.motion)
        if not ranked:
            self._drop_relocation(context)
            return Choice(best_quality(candidates), False, False, "every mask is empty")
        reasons = []
        for index, box, overlap in ranked:
            reason = self._implausible(box, float(candidates.ious[index]), overlap, context)
            if not reason:
                self._relocation, self._looks = None, 0
                partial = self._confirmed and not self._is_large(box.area, self.MOVING_SHARE)
                return Choice(index, True, True, motion_iou=overlap, partial=partial)
            reasons.append(reason)
        index, box, overlap = ranked[0]
        if self._keeps_being_seen(box, float(candidates.ious[index]), context):
            return Choice(index, True, True, "the target jumped", overlap, jumped=True)
        gone = context.state in (TrackState.COASTING, TrackState.LOST)
        next_crop = box if gone and self._is_worth_a_look(box, float(candidates.ious[index])) else None
        return Choice(index, True, False, reasons[0], overlap, next_crop=next_crop)

    def _is_worth_a_look(self, box: Box, quality: float) -> bool:
        """Whether something rejected might prove to be the target, seen from the middle of the window."""
        if self._unlike(box) or self._unclear(quality, self.SEEN_SHARE):
            return False
        self._looks += 1
        # In between the search goes on: the target may be elsewhere.
        return self._looks % (2 * self.MOST_LOOKS) < self.MOST_LOOKS

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

    def _implausible(self, box: Box, quality: float, overlap: float, context: FrameContext) -> str:
        """Why a candidate cannot be the target; empty when it can."""
        gone = context.state in (TrackState.COASTING, TrackState.LOST)
        misplaced = self._misplaced(box, quality, overlap, context, gone)
        if misplaced or not gone:
            return misplaced or self._unclear(
                quality, self.SEEN_SHARE if self._confirmed else self.CLEAR_SHARE
            )
        return self._unlike(box) or self._unclear(quality, self.CLEAR_SHARE)

    def _misplaced(self, box: Box, quality: float, overlap: float, context: FrameContext, gone: bool) -> str:
        """Why the target cannot be where a candidate is; empty when it can."""
        motion = context.motion
        if motion is None or overlap >= self.config.gate_iou:
            return ""
        if gone:
            reach = min(self.STRAY + self.STRAY_PER_S * self._gone_s(context), self.STRAY_MOST)
            away = _distance(box, motion.box) / max(motion.box.size, 1.0)
            return (
                f"seen {away:.1f} sizes from where it would be (at most {reach:.1f})" if away > reach else ""
            )
        distance, gate = motion.mahalanobis(box, quality), self.config.gate_mahalanobis
        if distance <= gate:
            return ""
        return (
            f"seen where it cannot be (distance^2 {distance:.0f} above {gate:g}, "
            f"overlap {overlap:.2f} below {self.config.gate_iou:g})"
        )

    def _gone_s(self, context: FrameContext) -> float:
        return (context.stamp_ns - self._confirmed_ns) * 1e-9

    def _unclear(self, quality: float, share: float) -> str:
        """Why a candidate is not seen as clearly as the target usually is; empty when it is."""
        if not self._qualities:
            return ""  # the network has not seen the target yet: anything may be it
        least = share * float(np.median(self._qualities))
        return f"seen unclearly (predicted IoU {quality:.2f} below {least:.2f})" if quality < least else ""

    def _unlike(self, box: Box) -> str:
        """Why a candidate has not the target's size before the gap; empty when it has."""
        if not self._areas:
            return ""
        # The median: the last boxes before an occlusion show only what was left of the target.
        ratio = box.area / float(np.median(self._areas))
        if 1 / self.MAX_AREA_RATIO < ratio < self.MAX_AREA_RATIO:
            return ""
        return f"seen at {ratio:.2g} times its usual area"

    def _keeps_being_seen(self, box: Box, quality: float, context: FrameContext) -> bool:
        """True when a rejected candidate has moved consistently for long enough."""
        if self._unlike(box) or self._unclear(quality, self.RELOCATION_SHARE):
            self._drop_relocation(context)
            return False
        if self._relocation is not None:
            self._relocation.predict(context.stamp_ns)
            if self._relocation.mahalanobis(box, quality) <= self.config.gate_mahalanobis:
                self._relocation.update(box, quality)
                self._relocation_frames += 1
            else:
                self._relocation = None
        if self._relocation is None:
            self._relocation, self._relocation_frames = MotionFilter(context.stamp_ns, box), 1
        factor = 1
        if context.state in (TrackState.COASTING, TrackState.LOST) and self._gone_s(context) > self.JUMP_S:
            factor = self.RELOCATION_FACTOR
        if self._relocation_frames < factor * self.config.reacquire_frames:
            return False
        self._relocation = None
        return True

    def _drop_relocation(self, context: FrameContext) -> None:
        """What was seen elsewhere is forgotten, unless this frame's view did not show its place."""
        if self._relocation is not None:
            self._relocation.predict(context.stamp_ns)
            if _shows(context.view, self._relocation.box):
                self._relocation = None

    def finish(
        self, candidates: Candidates, choice: Choice, context: FrameContext, confirmed: bool
    ) -> int | None:
        quality = float(candidates.ious[choice.index])
        self._confirmed = confirmed
        if confirmed:
            self._confirmed_ns = context.stamp_ns
        keep = self._prompted
        if choice.accepted and confirmed:
            area = max(candidates.box(choice.index).area, 1.0)
            keep |= quality > self.config.memory_quality and not self._unclear(quality, self.KEPT_SHARE)
            keep &= self._prompted or self._is_large(area, self.WHOLE_SHARE)
            self._qualities.append(quality)
            self._confirmed_areas.append(area)
            if keep:
                self._areas.append(area)
        if keep:
            return self._store(candidates, choice)
        self.skip()
        return None

    def _is_large(self, area: float, share: float) -> bool:
        """Whether at least this share of the target's usual area is seen."""
        return not self._confirmed_areas or area >= share * float(np.median(self._confirmed_areas))


def _distance(box: Box, expected: Box) -> float:
    """Between the centres, px. For a smaller box the nearest centre that it allows counts, as it may be
    hidden in part."""
    dx = max(abs(box.cx - expected.cx) - max(expected.width - box.width, 0.0) / 2, 0.0)
    dy = max(abs(box.cy - expected.cy) - max(expected.height - box.height, 0.0) / 2, 0.0)
    return math.hypot(dx, dy)


def _shows(view: View, box: Box) -> bool:
    """Whether a view shows the middle of a box."""
    x, y = (box.cx - view.x) * view.scale_x, (box.cy - view.y) * view.scale_y
    return 0 <= x < view.side and 0 <= y < view.side
