"""The interface of a policy, which decides which candidate is the target and which frames are remembered."""

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
from efftam_ros.core.types import Candidates, Frame, Motion, TrackState

NOT_KNOWN = Looks(Gallery())


@dataclass(frozen=True, eq=False)
class FrameContext:
    """What is known about a target in an image before its candidates are judged.

    Attributes:
        frame: The image and its stamp.
        size: Width and height of the image, px.
        state: State of the target before this frame.
        search: The search for the target while it is missed. A policy that searches adds the candidates that
            it rejects.
        looks: What boxes of this image look like, compared with the target's kept looks.
        is_prompted: Whether the target is selected on this frame.
        drawn: On a prompted frame the drawn box, or the box around the drawn mask, px; else None.
        motion: The motion filter, predicted to the frame's stamp; None if the target's position is unknown.
        expected: The motion that ``motion`` predicts, with the velocity relative to the ground; None
            without ``motion``.
        view: The region of the image that the network received.
        is_confirmed: Whether the target was claimed before this frame, so that the track is unbroken.
        confirmed_ns: Stamp of the last frame in which the target was claimed, ns; None before the first.
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
    is_confirmed: bool = True
    confirmed_ns: int | None = None


@dataclass(frozen=True)
class Choice:
    """A policy's decision about one frame.

    Attributes:
        index: Index of the chosen candidate.
        present: Whether the target is visible. The memory encoder receives this value.
        box: The measured box, px; None if the candidate is not accepted as the target.
        reason: Why it is not accepted, or what the user should know; may be empty.
        motion_iou: IoU with the predicted box; None if the policy does not compute it.
        jumped: Whether the accepted box lies away from the predicted position, so that the motion filter
            starts anew.
        partial: Whether only a part of the target is visible in the accepted box.
        confidence: Probability that ``box`` is on the target; NaN where it is not known.
    """

    index: int
    present: bool
    box: Box | None
    reason: Reason = NO_REASON
    motion_iou: float | None = None
    jumped: bool = False
    partial: bool = False
    confidence: float = math.nan


class Policy:
    """Makes the decisions about one target. The tracker carries them out, in memory, motion and search.

    For each frame `choose` is called once, or `begin` on a prompted frame, and then `keeps` once. ``config``
    may be replaced between frames. A policy that overrides only `choose` keeps no state, judges a prompted
    frame like any other, remembers every frame, and does not search in windows.
    """

    asks_twice = False
    """Whether the network also gets the centre of a drawn box as a point, which shows whether the selection
    is doubtful."""

    def __init__(self, rule: Rule, config: TrackerConfig) -> None:
        """``rule``: decides which of the remembered frames the network attends to."""
        self.rule, self.config = rule, config

    def reset(self) -> None:
        """Discard all that is known of the target."""

    def resize(self, area_factor: float) -> None:
        """Scale all known areas, because the area of the images has changed by this factor."""

    def searches(self, state: TrackState, is_interrupted: bool) -> bool:
        """Return whether a missed target is searched for in the whole image; if not, the network looks only
        where the target is predicted.

        ``state``: state of the target. ``is_interrupted``: whether its motion up to the previous image is no
        longer valid.
        """
        return state is TrackState.LOST and not is_interrupted

    @property
    def search_windows(self) -> int:
        """Largest number of windows in which one missed target is searched for in one image. The look at the
        best place, which follows the search, is not counted."""
        return 0

    def view(self, default: str) -> str:
        """Return the kind of view, "auto", "full" or "window", where the user chooses none. ``default``: the
        kind that the network's bundle names."""
        return default

    def extent(self, drawn: Box | None, prompted: Box | None, size: tuple[int, int]) -> TargetExtent:
        """Return an object that computes the published box from the candidates, for a newly selected target.

        Args:
            drawn: The drawn box, px; None where points were given.
            prompted: Box of the network's mask on the prompted frame, px; None if the mask is empty.
            size: Width and height of the image, px.
        """
        return TargetExtent()

    def detections(self, windows: Sequence[Candidates], looks: Looks) -> list[list[Detection]]:
        """Return, for each window of one image, the objects that its candidates show, each with the evidence
        that it is the target. ``windows``: the candidates in each window; ``looks``: the looks of boxes of
        this image."""
        return [[] for _ in windows]

    def begin(self, candidates: Candidates, context: FrameContext) -> Choice:
        """Choose a candidate on the frame on which the target is selected."""
        return self.choose(candidates, context)

    def choose(self, candidates: Candidates, context: FrameContext) -> Choice:
        """Choose a candidate on a tracked frame, and decide whether it is the target. All numbers of the
        candidates are finite."""
        raise NotImplementedError

    def keeps(self, candidates: Candidates, choice: Choice, context: FrameContext, confirmed: bool) -> bool:
        """Finish the frame, and return whether it is remembered. A prompted frame always is.

        ``choice``: what `choose` or `begin` returned; ``confirmed``: whether the target is claimed after this
        frame.
        """
        return True


def best_quality(candidates: Candidates) -> int:
    """Return the index of the candidate with the highest predicted IoU; of equal ones, the first."""
    return int(np.argmax(candidates.ious))


def accept_if_visible(
    candidates: Candidates, index: int, present: bool, motion_iou: float | None = None
) -> Choice:
    """Return the choice of candidate ``index``, which is accepted if the target is present and the mask is
    not empty. For the arguments see `Choice`."""
    box = candidates.box(index)
    reason = NO_REASON
    if not present:
        reason = absence_reason(candidates)
    elif box.is_empty:
        reason = ReasonCode.EMPTY_MASK.reason()
    return Choice(index, present, None if reason else box, reason, motion_iou)


def absence_reason(candidates: Candidates) -> Reason:
    """Return the `Reason` which states that the network does not see the target."""
    return ReasonCode.ABSENT.reason(presence=candidates.presence)
