"""The interface of a policy: which candidate is the target, whether it counts, what is remembered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.geometry import Box, View
from efftam_ros.core.memory import MemoryBank, Record
from efftam_ros.core.motion import MotionFilter
from efftam_ros.core.types import Candidates, MemoryPlan, TrackState


@dataclass(frozen=True)
class FrameContext:
    """What is known about a frame before its candidates are judged. ``motion`` is predicted to the frame's
    stamp, None when nothing is believed."""

    stamp_ns: int
    view: View
    state: TrackState
    motion: MotionFilter | None


@dataclass(frozen=True)
class Choice:
    """A policy's verdict. ``accepted``: the box counts as measured; ``present``: what the memory is told;
    ``reason``: why it was not accepted, one line; ``motion_iou``: overlap with the predicted box where the
    policy looks at it; ``jumped``: accepted away from where the motion expected it, so that the motion must
    start anew; ``next_crop``: where the next frame should be looked at to tell whether that is the target;
    ``partial``: accepted, but only part of the target shows.
    """

    index: int
    present: bool
    accepted: bool
    reason: str = ""
    motion_iou: float | None = None
    jumped: bool = False
    next_crop: Box | None = None
    partial: bool = False


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

    def begin(self, candidates: Candidates, context: FrameContext) -> Choice:
        """Judge a prompted frame."""
        ...

    def choose(self, candidates: Candidates, context: FrameContext) -> Choice:
        """Judge a tracked frame. The candidates are finite."""
        ...

    def finish(
        self, candidates: Candidates, choice: Choice, context: FrameContext, confirmed: bool
    ) -> int | None:
        """Close the frame; the ring slot it is to be remembered in, None when it is not. ``confirmed``: the
        state after this frame claims the target (first frames of a selection, or TRACKING)."""
        ...

    def skip(self) -> None:
        """Close a frame that gave no usable candidates."""
        ...


def best_quality(candidates: Candidates) -> int:
    """The candidate with the highest predicted IoU; the first of equals."""
    return int(np.argmax(candidates.ious))


def accept_if_visible(
    candidates: Candidates, index: int, present: bool, motion_iou: float | None = None
) -> Choice:
    """Accept whatever is present and not empty."""
    reason = ""
    if not present:
        reason = unseen(candidates)
    elif candidates.box(index).is_empty:
        reason = "the mask is empty"
    return Choice(index, present, not reason, reason, motion_iou)


def unseen(candidates: Candidates) -> str:
    """The reason of an absent target."""
    return f"the network does not see the target (presence {candidates.presence:.2f})"


class RememberingPolicy:
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

    def _store(self, candidates: Candidates, choice: Choice) -> int:
        slot = self._bank.add(
            Record(
                self._frame,
                self._prompted,
                float(candidates.ious[choice.index]),
                candidates.presence_logit,
                choice.motion_iou,
            )
        )
        self.skip()
        return slot
