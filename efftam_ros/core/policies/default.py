"""The default policy: decides by presence, predicted IoU, motion and likeness which candidate is the
target."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import median

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.gallery import USUAL_DROP, Looks
from efftam_ros.core.geometry import Box, iou
from efftam_ros.core.memory import RankedFrames
from efftam_ros.core.policies.base import (
    Choice,
    FrameContext,
    Policy,
    absence_reason,
    accept_if_visible,
    best_quality,
)
from efftam_ros.core.policies.constants import (
    CLAIM_AREA,
    CLAIM_DEFICIT,
    CLAIM_LOG_ODDS,
    CLEAR,
    GROWN_CLEARNESS,
    GROWN_SHARE,
    JUMP_PER_S,
    KEPT_SHARE,
    LIKENESS,
    MAX_AREA_RATIO,
    MAX_PX,
    MIN_PRESENCE,
    MOVING_SHARE,
    REMEMBERED_FRAMES,
    RETURN_MARGIN,
    SAME_IOU,
    SCALE_FRAMES,
    SEEN_SHARE,
    STILL_S,
    STRAY,
    STRAY_PER_S,
    UNLIKELY_SIZE,
    USUAL_FRAMES,
    WEIGHT,
    WHOLE_SHARE,
)
from efftam_ros.core.policies.drawn_box import (
    TargetExtent,
    is_inside,
    make_extent,
    size_overlap,
)
from efftam_ros.core.policies.search import CandidateTrack, Detection
from efftam_ros.core.reasons import NO_REASON, Reason, ReasonCode
from efftam_ros.core.selection import whole
from efftam_ros.core.types import MISSED, Candidates, Motion, PipelineSpec, TrackState


class TargetModel:
    """The usual scores and sizes of one target, with which new candidates are compared."""

    def __init__(self) -> None:
        self.usual_quality = -math.inf
        """The usual predicted IoU; -inf before the first confirmed frame."""
        self.usual_area: float | None = None
        """The usual area of the box, px^2; None before the first confirmed frame."""
        self.least_llr = 0.0
        """The log-likelihood ratio, without likeness, that a candidate must exceed to be the target."""
        # Areas of the target's box in the last remembered frames, px^2.
        self._areas: deque[float] = deque(maxlen=REMEMBERED_FRAMES)
        self._qualities: deque[float] = deque(maxlen=USUAL_FRAMES)
        self._confirmed_areas: deque[float] = deque(maxlen=USUAL_FRAMES)
        self._confirmed_llrs: deque[float] = deque(maxlen=USUAL_FRAMES)

    def add(self, area: float, quality: float, presence_logit: float, remembered: bool) -> None:
        """Add a confirmed frame. ``remembered``: whether the frame is stored in the memory; for the other
        values see `llr`."""
        self._confirmed_llrs.append(self.llr(area, quality, presence_logit))
        self._qualities.append(quality)
        self._confirmed_areas.append(area)
        if remembered:
            self._areas.append(area)
        self.usual_quality, self.usual_area = median(self._qualities), median(self._confirmed_areas)
        self.least_llr = max(0.0, median(self._confirmed_llrs) - RETURN_MARGIN)

    def resize(self, area_factor: float) -> None:
        """Scale all areas, because the area of the images has changed by this factor."""
        for areas in (self._areas, self._confirmed_areas):
            known = [area_factor * area for area in areas]
            areas.clear()
            areas.extend(known)
        self.usual_area = median(self._confirmed_areas) if self._confirmed_areas else None

    def confidence(self, area: float, deficit: float) -> float:
        """Return the probability that a claimed box is on the target, 0..1.

        ``area``: area of the box, px^2; ``deficit``: by how much the box is less like the target than the
        target usually is, at least 0. If the deficit is NaN, because it is not known, so is the probability.
        """
        change = 0.0 if self.usual_area is None else abs(math.log(max(area, 1.0) / max(self.usual_area, 1.0)))
        return 1.0 / (1.0 + math.exp(CLAIM_DEFICIT * deficit + CLAIM_AREA * change - CLAIM_LOG_ODDS))

    def llr(self, area: float, quality: float, presence_logit: float) -> float:
        """Return the log-likelihood ratio that a candidate is the target rather than another object.

        Args:
            area: Area of its box, px^2.
            quality: Its predicted IoU.
            presence_logit: Logit of the presence in its view.
        """
        usual = self.usual_quality if self._qualities else quality
        usual_area = median(self._areas) if self._areas else area
        size = abs(math.log(max(area, 1.0) / max(usual_area, 1.0)))
        size += UNLIKELY_SIZE * max(0.0, size - math.log(MAX_AREA_RATIO))
        # The weights were chosen on detections that were recorded while the target was lost
        # (docs/tracking.md). Their scale was chosen so that the sum over several detections can be added to
        # the log-odds of a prior.
        seen = 0.33 * min(max(presence_logit, -3.0), 4.0) + 1.6 * min(quality / max(usual, 0.1), 1.2)
        return seen - 0.33 * size - 1.0


class MaskScale:
    """Prefers, among the three candidates, the one whose scale fits the drawn box.

    The three candidates for a followed target mostly show one object at three scales: a part, the whole, and
    the whole with what is attached. Their predicted IoUs hardly differ, and that of the middle one is mostly
    the highest. But a small target may be the part (a head), or the largest (a vehicle of ten pixels, of
    which only the roof is salient). A mask of the wrong scale would be remembered, so that the error grows
    from image to image. Therefore the candidates of the first frames are compared with the drawn box.
    """

    def __init__(self, drawn: Box | None, image_size: tuple[int, int]) -> None:
        """Start on the prompted frame. Only a drawn box that is smaller than `MAX_PX` and keeps a distance
        from the image's border is used.

        ``drawn``: the drawn box, px, None where points were given; ``image_size``: width and height, px.
        """
        is_used = drawn is not None and drawn.size < MAX_PX and is_inside(drawn, image_size)
        self._drawn = drawn if is_used else None
        self._fits: list[NDArray[np.float64]] = []
        self.is_settled = self._drawn is None
        """Whether enough frames were compared, so that `add` does nothing any more."""

    def add(self, candidates: Candidates) -> None:
        """Compare the candidates of an accepted frame with the drawn box. Only the first `SCALE_FRAMES` are
        used."""
        if self._drawn is not None and not self.is_settled:
            self._fits.append(self._fit(candidates, self._drawn))
            self.is_settled = len(self._fits) == SCALE_FRAMES

    def favour(self, candidates: Candidates) -> Sequence[float]:
        """Return, for each candidate, the bonus on its predicted IoU, at least 0."""
        count = len(candidates.ious)
        if self._drawn is None or count == 1:
            return [0.0] * count
        fits = [fit for fit in self._fits if len(fit) == count]
        if not self.is_settled:
            fits.append(self._fit(candidates, self._drawn))
        if not fits:
            return [0.0] * count
        fit = np.mean(fits, axis=0)
        excess = fit - fit[int(np.argmax(candidates.ious))] - CLEAR
        return list((WEIGHT * np.maximum(0.0, excess)).tolist())

    @staticmethod
    def _fit(candidates: Candidates, drawn: Box) -> NDArray[np.float64]:
        """Return how well the size of each candidate's box fits the drawn box, [K], 0..1."""
        return np.array([size_overlap(candidates.box(i), drawn) for i in range(len(candidates))])


@dataclass(frozen=True)
class VisibleCandidate:
    """A candidate whose mask is not empty.

    Attributes:
        index: Its index among the candidates.
        box: Px.
        area: Area of the box, px^2.
        quality: Predicted IoU.
        overlap: IoU with the predicted box; 0 if the target's position is unknown.
        score: The number by which the candidates are ranked, see `DefaultPolicy`.
    """

    index: int
    box: Box
    area: float
    quality: float
    overlap: float = 0.0
    score: float = 0.0


class DefaultPolicy(Policy):
    """The policy of this package. Its rules:

    1. Presence: if the network reports the target as absent, no candidate is accepted or remembered.
    2. Ranking: the candidates are ranked by a score. This is the predicted IoU, plus a share of the overlap
       with the predicted box, plus a bonus for the scale that fits the drawn box (`MaskScale`). The first
       candidate that passes the rules 3 and 4 is accepted, unless its confidence is below `least_confidence`.
       If none is accepted, nothing is updated or remembered.
    3. The motion gate: a candidate is refused as another object if it lies outside the motion filter's
       uncertainty, does not overlap the predicted box, and is not where the target was in the previous image.
    4. Clearness: a candidate with a predicted IoU far below the target's usual one is refused. It is an
       occluder, or the ground where the target was.
    5. Return: a target that is missed is searched for. It is accepted where several detections agree
       (`Reacquisition`).
    6. Memory: a frame is remembered if the target is confirmed and seen clearly. A frame in which the target
       is suddenly smaller is not remembered: of a target that is being covered, only the last visible corner
       would stay in memory. Nor is a frame in which the target is suddenly larger and less clear: its mask
       may include a neighbour, and both would be followed as the target.
    """

    asks_twice = True

    def __init__(self, spec: PipelineSpec, config: TrackerConfig) -> None:
        rule = RankedFrames(
            temporal_rows=spec.temporal_rows,
            recent=spec.recent_maps,
            max_maps=spec.max_maps or spec.temporal_rows,
            max_pointers=spec.max_pointers,
        )
        super().__init__(rule, config)
        self._head = spec.box_head
        self.reset()

    def reset(self) -> None:
        self.model = TargetModel()
        """The usual scores of the target."""
        self._scale = MaskScale(None, (0, 0))

    def searches(self, state: TrackState, is_interrupted: bool) -> bool:
        return True

    @property
    def search_windows(self) -> int:
        return self.config.search_windows

    def extent(self, drawn: Box | None, prompted: Box | None, size: tuple[int, int]) -> TargetExtent:
        return make_extent(self._head, drawn, prompted, size)

    def resize(self, area_factor: float) -> None:
        self.model.resize(area_factor)

    def begin(self, candidates: Candidates, context: FrameContext) -> Choice:
        self._scale = MaskScale(context.drawn, context.size)
        # In the image in which the user selects the target, a low presence does not refuse a candidate.
        index = whole(candidates) if context.drawn is None else best_quality(candidates)
        return accept_if_visible(candidates, index, present=True)

    def choose(self, candidates: Candidates, context: FrameContext) -> Choice:
        if context.state in MISSED:
            return self._choose_return(candidates, context)
        if candidates.presence < self.config.presence_threshold:
            return Choice(best_quality(candidates), False, None, absence_reason(candidates))
        ranked = self._ranked(candidates, context.expected)
        if not ranked:
            return Choice(best_quality(candidates), False, None, ReasonCode.EMPTY_MASK.reason())
        reason = NO_REASON
        gallery = context.looks.gallery
        for seen in ranked:
            refusal = self._refusal(seen, candidates, context)
            if refusal:
                reason = reason or refusal
                continue
            # An unbroken track was described after an earlier image, a possible return in this image.
            deficit = gallery.deficit_now
            if not context.is_confirmed:
                deficit = gallery.deficit(context.looks.likeness(seen.box))
            confidence = self.model.confidence(seen.area, deficit)
            if not confidence < self.config.least_confidence:
                partial = context.is_confirmed and self._share(seen.area) < MOVING_SHARE
                return Choice(seen.index, True, seen.box, NO_REASON, seen.overlap, False, partial, confidence)
            reason = reason or self._not_confident(confidence)
        context.search.begin(context.size, context.motion)
        self._observe(candidates, context)
        return Choice(ranked[0].index, True, None, reason, ranked[0].overlap)

    def _choose_return(self, candidates: Candidates, context: FrameContext) -> Choice:
        """Judge a frame of a missed target: decide whether a candidate is the returning target."""
        search = context.search
        search.begin(context.size, context.motion)
        self._observe(candidates, context)
        present = candidates.presence >= self.config.presence_threshold
        ranked = self._ranked(candidates, None) if present else []
        least = SEEN_SHARE * self.model.usual_quality
        clear = [seen for seen in ranked if not seen.quality < least]
        accepted, reason = search.accepted, ReasonCode.UNSURE_RETURN.reason(search=search.summary)
        near = [
            s for s in clear if self._is_near(s.box, context) and self._is_sure(s, candidates, context.looks)
        ]
        found = [s for s in clear if accepted is not None and _is_same(accepted, s.box)]
        for seen in near + found:
            deficit = context.looks.gallery.deficit(context.looks.likeness(seen.box))
            confidence = self.model.confidence(seen.area, deficit)
            if not confidence < self.config.least_confidence:
                jumped = seen not in near
                how = ReasonCode.FOUND_AGAIN.reason() if jumped else NO_REASON
                return Choice(seen.index, True, seen.box, how, seen.overlap, jumped, False, confidence)
            reason = self._not_confident(confidence)
        if ranked:
            return Choice(ranked[0].index, present, None, reason)
        lack = ReasonCode.EMPTY_MASK.reason() if present else absence_reason(candidates)
        return Choice(best_quality(candidates), present, None, lack.with_detail(search.summary))

    def _not_confident(self, confidence: float) -> Reason:
        """Return the `Reason` for not accepting a candidate whose confidence is below `least_confidence`."""
        limit = self.config.least_confidence
        return ReasonCode.NOT_CONFIDENT.reason(confidence=confidence, least=limit)

    def _observe(self, candidates: Candidates, context: FrameContext) -> None:
        """Update the search by the objects that the candidates of this frame show."""
        assert context.view is not None
        (found,) = self.detections([candidates], context.looks)
        context.search.observe(context.frame.stamp_ns, [(context.view, found)])

    def _is_near(self, box: Box, context: FrameContext) -> bool:
        """Return whether a box is near the place where a COASTING target is expected. False for a LOST
        one."""
        if context.motion is None or context.confirmed_ns is None or context.state is TrackState.LOST:
            return False
        reach = STRAY + STRAY_PER_S * (context.frame.stamp_ns - context.confirmed_ns) * 1e-9
        predicted = context.motion.box
        x, y = context.search.expected(context.frame.stamp_ns) or (predicted.cx, predicted.cy)
        expected = Box.from_centre(x, y, predicted.width, predicted.height)
        return _distance(box, expected) <= reach * max(expected.size, 1.0)

    def _refusal(self, seen: VisibleCandidate, candidates: Candidates, context: FrameContext) -> Reason:
        """Return why a candidate is not the target that is being followed; empty if the candidate passes."""
        config, model, motion = self.config, self.model, context.motion
        if motion is not None and seen.overlap < config.gate_iou:
            distance = motion.mahalanobis(seen.box, seen.quality)
            is_possible = self._is_still(seen.box, context) or self._has_jumped(seen, motion.box, context)
            if distance > config.gate_mahalanobis and not is_possible:
                return ReasonCode.MOTION_GATE.reason(distance=distance, limit=config.gate_mahalanobis)
        least = SEEN_SHARE * model.usual_quality
        if seen.quality < least:
            return ReasonCode.UNCLEAR.reason(quality=seen.quality, least=least)
        if not context.is_confirmed and not self._llr(seen, candidates, context.looks) > 0.0:
            return ReasonCode.UNLIKE_RETURN.reason()
        return NO_REASON

    def _is_still(self, box: Box, context: FrameContext) -> bool:
        """Return whether a box overlaps the target's box in an image shortly before (`STILL_S`)."""
        seen = context.search.last_seen
        if seen is None or not 0 <= (context.frame.stamp_ns - seen.stamp_ns) * 1e-9 <= STILL_S:
            return False
        return iou(box, seen.box) >= self.config.gate_iou

    def _has_jumped(self, seen: VisibleCandidate, predicted: Box, context: FrameContext) -> bool:
        """Return whether a candidate may be the target after a jerk of camera or target: it is clear, and not
        too far from the predicted box."""
        if not context.is_confirmed or context.confirmed_ns is None:
            return False
        reach = min(STRAY, JUMP_PER_S * (context.frame.stamp_ns - context.confirmed_ns) * 1e-9)
        is_clear = seen.quality >= KEPT_SHARE * self.model.usual_quality
        return is_clear and _distance(seen.box, predicted) <= reach * max(predicted.size, 1.0)

    def _share(self, area: float) -> float:
        """Return the ratio of an area to the target's usual area; 1 while the usual area is unknown."""
        usual = self.model.usual_area
        return 1.0 if usual is None else area / usual

    def _llr(self, seen: VisibleCandidate, candidates: Candidates, looks: Looks) -> float:
        """Return the log-likelihood ratio, with likeness, that a candidate is the missed target."""
        seen_llr = self.model.llr(seen.area, seen.quality, candidates.presence_logit)
        return seen_llr + LIKENESS * looks.lead(seen.box)

    def _is_sure(self, seen: VisibleCandidate, candidates: Candidates, looks: Looks) -> bool:
        """Return whether a candidate at the expected place is so certain that one image suffices to accept it
        as the target's return."""
        usual_lead = 0.0 if math.isnan(looks.likeness(seen.box)) else USUAL_DROP
        return self._llr(seen, candidates, looks) > self.model.least_llr + LIKENESS * usual_lead

    def detections(self, windows: Sequence[Candidates], looks: Looks) -> list[list[Detection]]:
        found = [(candidates, self._objects(candidates)) for candidates in windows]
        for _, objects in found:  # all objects are described first, because each is compared with all others
            for seen in objects:
                looks.vector(seen.box)
        return [
            [Detection(seen.box, seen.quality, self._llr(seen, candidates, looks)) for seen in objects]
            for candidates, objects in found
        ]

    def _objects(self, candidates: Candidates) -> list[VisibleCandidate]:
        """Return the candidates in one window that show different objects, best first. Of candidates that
        overlap, only the best is returned."""
        if not candidates.is_finite or candidates.presence < MIN_PRESENCE:
            return []
        found: list[VisibleCandidate] = []
        for seen in self._ranked(candidates, None):
            if all(iou(seen.box, other.box) < SAME_IOU for other in found):
                found.append(seen)
        return found

    def _ranked(self, candidates: Candidates, expected: Motion | None) -> list[VisibleCandidate]:
        """Return the candidates whose masks are not empty, the one with the highest score first.
        ``expected``: the predicted motion; None: overlap is not considered."""
        found = []
        favours = self._scale.favour(candidates)
        for index, box in candidates.visible:
            quality = float(candidates.ious[index])
            overlap = iou(box, expected.box) if expected is not None else 0.0
            score = quality + favours[index] + self.config.motion_weight * overlap
            found.append(VisibleCandidate(index, box, box.width * box.height, quality, overlap, score))
        found.sort(key=attrgetter("score"), reverse=True)
        return found

    def keeps(self, candidates: Candidates, choice: Choice, context: FrameContext, confirmed: bool) -> bool:
        if not confirmed or choice.box is None:
            return context.is_prompted
        model, quality = self.model, float(candidates.ious[choice.index])
        area, keeps = max(choice.box.width * choice.box.height, 1.0), context.is_prompted
        if not context.is_prompted:
            self._scale.add(candidates)
            share, is_clear = self._share(area), not quality < KEPT_SHARE * model.usual_quality
            # Whether the mask seems to include a second object.
            is_merged = share > GROWN_SHARE and quality < GROWN_CLEARNESS * model.usual_quality
            is_itself = share >= WHOLE_SHARE and not is_merged
            keeps = quality > self.config.memory_quality and is_clear and is_itself
        self.model.add(area, quality, candidates.presence_logit, keeps)
        return keeps


def _distance(box: Box, expected: Box) -> float:
    """Return the distance between the centres of two boxes, px."""
    return math.hypot(box.cx - expected.cx, box.cy - expected.cy)


def _is_same(track: CandidateTrack, box: Box) -> bool:
    """Return whether a track of the search and a candidate's box, px, belong to the same object."""
    return math.hypot(box.cx - track.box.cx, box.cy - track.box.cy) < max(track.box.size, box.size) / 2
