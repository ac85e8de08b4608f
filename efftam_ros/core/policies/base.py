"""The interface of a policy: which candidate is the target, whether it counts, what is remembered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from efftam_ros.core.camera_motion import Matrix
from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.geometry import Box, View
from efftam_ros.core.memory import FrameMemory, MemoryBank, Rule
from efftam_ros.core.motion import MotionFilter
from efftam_ros.core.policies.appearance import Descriptor
from efftam_ros.core.policies.drawn_box import DrawnExtent, TargetExtent
from efftam_ros.core.types import NO_POINTS, Candidates, FoundPoints, Motion, ScoredBox, TrackState

Describe = Callable[[Box], Descriptor | None]


def no_description(box: Box) -> Descriptor | None:
    return None


@dataclass(frozen=True)
class FrameContext:
    """What is known about a frame before its candidates are judged.

    ``describe`` returns the appearance of a box of the image, None where it can't be computed; ``motion``:
    the filter predicted to the frame's stamp, None without an estimate; ``expected``: the estimate of
    ``motion``, with the velocity relative to the ground; ``drawn``: the prompt's box, or that of its mask;
    ``points``: the points on the target that were found again in this image."""

    stamp_ns: int
    view: View
    state: TrackState
    image_size: tuple[int, int]
    describe: Describe = no_description
    motion: MotionFilter | None = None
    expected: Motion | None = None
    drawn: Box | None = None
    points: FoundPoints = NO_POINTS


@dataclass(frozen=True)
class SearchContext:
    """What is known about an image before it is searched for the missed target. ``motion``: estimate before
    this frame, or None; ``extent_px``: side of the window that would follow the target; ``side``: side of the
    network's input, network px."""

    stamp_ns: int
    image_size: tuple[int, int]
    state: TrackState
    motion: MotionFilter | None
    extent_px: float
    side: int
    describe: Describe = no_description


@dataclass(frozen=True)
class Choice:
    """A policy's decision.

    ``index``: the chosen candidate; ``present``: presence passed to the memory encoder; ``box``: the measured
    box, None when the candidate is not accepted; ``reason``: why it is not, one line; ``motion_iou``: IoU
    with the predicted box, where the policy uses it; ``jumped``: accepted away from the predicted position,
    so that the motion filter is re-initialised; ``partial``: accepted, but only part of the target is
    visible."""

    index: int
    present: bool
    box: Box | None
    reason: str = ""
    motion_iou: float | None = None
    jumped: bool = False
    partial: bool = False


class Policy(Protocol):
    """Per frame: `choose` (or `begin` on a prompted frame), then `finish`, exactly once each.

    ``config`` may be replaced between frames. ``memory`` plans what the next frame attends to; ``extent``
    gives the target's published box for those of its masks. ``searches``: the policy compensates the
    camera's motion and searches for a missed target itself.
    """

    config: TrackerConfig
    memory: FrameMemory
    extent: TargetExtent
    searches: bool

    def reset(self) -> None:
        """Discard all state, for a new target."""
        ...

    @property
    def hypotheses(self) -> tuple[ScoredBox, ...]:
        """Possible positions of a missed target, best first."""
        ...

    def follow_camera(self, matrix: Matrix | None) -> None:
        """Apply the camera's motion to the present image; ``matrix`` as in `camera_motion.CameraMotion`. Not
        called without a source of the camera's motion."""
        ...

    def recognise_place(self, matrix: Matrix, stamp_ns: int) -> None:
        """The scene was recognised while the target is missed; ``matrix``: motion from the image of the last
        confirmed frame to that of ``stamp_ns``."""
        ...

    def restart_search(self) -> None:
        """Drop what was found since the target was missed: the images' stamps went back."""
        ...

    def resize(self, matrix: Matrix) -> None:
        """Carry over what is known in pixels: the images' size changed, ``matrix`` maps old pixels to new
        ones."""
        ...

    def windows(self, context: SearchContext) -> list[View]:
        """Views to search before the frame's own view is chosen; empty: none."""
        ...

    def view_after_search(
        self, views: Sequence[View], found: Sequence[Candidates], context: SearchContext
    ) -> View:
        """Process the candidates found in the views of `windows`; returns the frame's own view."""
        ...

    def begin(self, candidates: Candidates, context: FrameContext) -> Choice:
        """Judge a prompted frame."""
        ...

    def choose(self, candidates: Candidates, context: FrameContext) -> Choice:
        """Judge a tracked frame. The candidates are finite."""
        ...

    def finish(
        self, candidates: Candidates, choice: Choice, context: FrameContext, confirmed: bool
    ) -> int | None:
        """Close the frame; returns the ring slot to store it in, None when it is not stored. ``confirmed``:
        the state after this frame claims the target (first frames of a selection, or TRACKING)."""
        ...


def best_quality(candidates: Candidates) -> int:
    """The candidate with the highest predicted IoU; the first of equals."""
    return int(np.argmax(candidates.ious))


def accept_if_visible(
    candidates: Candidates, index: int, present: bool, motion_iou: float | None = None
) -> Choice:
    """Accept a candidate when the target is present and its mask is not empty."""
    box = candidates.box(index)
    reason = ""
    if not present:
        reason = absence_reason(candidates)
    elif box.is_empty:
        reason = "the mask is empty"
    return Choice(index, present, None if reason else box, reason, motion_iou)


def absence_reason(candidates: Candidates) -> str:
    """The reason given for an absent target."""
    return f"the network does not see the target (presence {candidates.presence:.2f})"


class PolicyBase:
    """Base of the policies: the memory of a target, and the methods of a policy that does not search."""

    searches = False

    def __init__(self, rule: Rule, slots: int, config: TrackerConfig) -> None:
        self._rule, self._slots, self.config = rule, slots, config
        self.reset()

    def reset(self) -> None:
        self.memory = FrameMemory(MemoryBank(self._rule, self._slots))
        self.extent: TargetExtent = DrawnExtent(None)

    @property
    def hypotheses(self) -> tuple[ScoredBox, ...]:
        return ()

    def follow_camera(self, matrix: Matrix | None) -> None:
        return

    def recognise_place(self, matrix: Matrix, stamp_ns: int) -> None:
        return

    def restart_search(self) -> None:
        return

    def resize(self, matrix: Matrix) -> None:
        return

    def windows(self, context: SearchContext) -> list[View]:
        return []

    def view_after_search(
        self, views: Sequence[View], found: Sequence[Candidates], context: SearchContext
    ) -> View:
        raise RuntimeError("this policy does not search")
