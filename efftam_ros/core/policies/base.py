"""The interface of a policy: which candidate is the target, whether it counts, what is remembered."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.gallery import Gallery, Looks
from efftam_ros.core.geometry import Box, View
from efftam_ros.core.memory import Rule
from efftam_ros.core.motion import MotionFilter
from efftam_ros.core.policies.drawn_box import TargetExtent
from efftam_ros.core.policies.search import Detection, Reacquisition
from efftam_ros.core.reasons import NO_REASON, Reason, ReasonCode
from efftam_ros.core.types import NO_POINTS, Candidates, FoundPoints, Frame, Motion, TrackState

NOT_KNOWN = Looks(Gallery())


@dataclass(frozen=True, eq=False)
class FrameContext:
    """What is known about a target in an image before its candidates are judged.

    Attributes:
        frame: The image and its stamp.
        size: Width and height, px.
        state: Before this frame.
        search: Of a target that is missed; a policy that searches adds what it rejects.
        looks: What the boxes of this image look like.
        is_prompted: Whether the target is selected on this frame.
        drawn: A prompted frame's box, or that of its mask.
        motion: The filter predicted to the frame's stamp, None without an estimate.
        expected: The estimate of ``motion``, with the velocity relative to the ground.
        view: What the network saw.
        points: Points on the target that were found again in this image.
        is_confirmed: Whether the state before this frame claims the target: the track is unbroken.
        confirmed_ns: Stamp of the last confirmed frame, ns.
    """

    frame: Frame
    size: tuple[int, int]
    state: TrackState
    search: Reacquisition
    looks: Looks = NOT_KNOWN
    is_prompted: bool = False
    drawn: Box | None = None
    motion: MotionFilter | None = None
    expected: Motion | None = None
    view: View | None = None
    points: FoundPoints = NO_POINTS
    is_confirmed: bool = True
    confirmed_ns: int | None = None


@dataclass(frozen=True)
class Choice:
    """A policy's decision.

    ``index``: the chosen candidate; ``present``: presence passed to the memory encoder; ``box``: the measured
    box, None when the candidate is not accepted; ``reason``: why it is not; ``motion_iou``: IoU
    with the predicted box, where the policy uses it; ``jumped``: accepted away from the predicted position,
    so that the motion filter is re-initialised; ``partial``: accepted, but only part of the target is
    visible; ``confidence``: the probability that ``box`` is on the target, NaN where it is not known."""

    index: int
    present: bool
    box: Box | None
    reason: Reason = NO_REASON
    motion_iou: float | None = None
    jumped: bool = False
    partial: bool = False
    confidence: float = math.nan


class Policy:
    """Decides; memory, motion and search are the tracker's.

    Per frame: `choose` (or `begin` on a prompted frame), then `keeps`, exactly once each. ``config`` may be
    replaced between frames. A policy that overrides `choose` alone has no state, judges a prompted frame like
    any other, remembers every frame, and weighs no windows.
    """

    asks_twice = False
    """Whether a drawn box is also asked for as a point, which shows whether the selection is weak."""

    def __init__(self, rule: Rule, config: TrackerConfig) -> None:
        """``rule`` decides which remembered frames are attended to."""
        self.rule, self.config = rule, config

    def reset(self) -> None:
        """Discard all state, for a new target."""

    def resize(self, area_factor: float) -> None:
        """Carry over what is known in pixels: the images' area changed by this factor."""

    def searches(self, state: TrackState, is_interrupted: bool) -> bool:
        """Return whether a missed target is looked for over the image, in `search_windows` or one place after
        the other; else it is looked for where it is predicted. ``is_interrupted``: the motion up to the
        previous image does not hold for this one."""
        return state is TrackState.LOST and not is_interrupted

    @property
    def search_windows(self) -> int:
        """Most windows of an image that are searched for a missed target, besides its own view."""
        return 0

    def view(self, default: str) -> str:
        """Return the kind of view where the user asks for none. ``default``: the network's."""
        return default

    def extent(self, drawn: Box | None, prompted: Box | None, size: tuple[int, int]) -> TargetExtent:
        """Return how the published box relates to the candidates, for a target that was ``drawn`` (px, None:
        not drawn) and whose mask on that image has the box ``prompted`` (None: the network saw nothing)."""
        return TargetExtent()

    def detections(self, windows: Sequence[Candidates], looks: Looks) -> list[list[Detection]]:
        """Weigh the candidates of windows of one image."""
        return [[] for _ in windows]

    def begin(self, candidates: Candidates, context: FrameContext) -> Choice:
        """Judge a prompted frame."""
        return self.choose(candidates, context)

    def choose(self, candidates: Candidates, context: FrameContext) -> Choice:
        """Judge a tracked frame. The candidates are finite."""
        raise NotImplementedError

    def keeps(self, candidates: Candidates, choice: Choice, context: FrameContext, confirmed: bool) -> bool:
        """Finish the frame. Returns True if it goes into memory (always for a prompted frame).

        ``confirmed``: the state after this frame claims the target (first frames of a selection, or
        TRACKING).
        """
        return True


def best_quality(candidates: Candidates) -> int:
    """Return the candidate with the highest predicted IoU; the first of equals."""
    return int(np.argmax(candidates.ious))


def accept_if_visible(
    candidates: Candidates, index: int, present: bool, motion_iou: float | None = None
) -> Choice:
    """Accept a candidate when the target is present and its mask is not empty."""
    box = candidates.box(index)
    reason = NO_REASON
    if not present:
        reason = absence_reason(candidates)
    elif box.is_empty:
        reason = ReasonCode.EMPTY_MASK.reason()
    return Choice(index, present, None if reason else box, reason, motion_iou)


def absence_reason(candidates: Candidates) -> Reason:
    """Return the reason for an absent target."""
    return ReasonCode.ABSENT.reason(presence=candidates.presence)
