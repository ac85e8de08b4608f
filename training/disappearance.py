"""Scores a tracker on clips in which the target disappears: presence decisions and returns.

A tracker *claims* the target in a frame if its box is measured and its state is TRACKING, or ACQUIRING after
a selection. Unconfirmed candidates for a return are not claims.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.geometry import Box, iou
from efftam_ros.core.targets import TargetSet
from efftam_ros.core.types import Frame, Image, Prompt, TrackState

PRESENT_SHARE = 0.3  # visible share of the target from which the target counts as present
BACK_SHARE = 0.5  # visible share of the target that ends a disappearance
HIT_IOU = 0.5
SMALL_PX, SMALL_HIT_IOU = 16.0, 0.3  # boxes below 16 px: an error of 1 px per edge halves the overlap
WRONG_IOU = 0.1
WRONG_FRAMES = 3
BEFORE_FRAMES = 5


class Truth(NamedTuple):
    """Ground truth of a frame.

    ``box``: box of the target's visible part, None if nothing is visible. ``outline``: box of the whole
    target, hidden or not. Both are in px. ``share``: visible share of the target, 0..1.
    """

    box: Box | None
    outline: Box
    share: float


class Disappearance(NamedTuple):
    """Frame indices of one disappearance.

    ``first``, ``last``: first and last frame in which nothing is visible. ``back``: the first frame after
    them with at least half of the target visible.
    """

    first: int
    last: int
    back: int


class Claim(NamedTuple):
    """A tracker's result for a frame: its box in px or None, and whether it claims the target."""

    box: Box | None
    present: bool


class Follower(Protocol):
    """A tracker under evaluation. ``first``: box to start from, with the first frame of a clip only."""

    def __call__(self, bgr: NDArray[np.uint8], stamp_ns: int, first: Box | None) -> Claim: ...


class TrackerFollower:
    """The package's tracker as a `Follower`."""

    def __init__(self, targets: TargetSet) -> None:
        self._targets = targets
        self._selected = False

    def __call__(self, bgr: NDArray[np.uint8], stamp_ns: int, first: Box | None) -> Claim:
        prompts = {} if first is None else {0: Prompt(box=first)}
        ((_, track, *_),) = self._targets.step(Frame(Image.from_array(bgr), stamp_ns), prompts)
        # ACQUIRING counts as a claim after a selection. Later it is an unconfirmed return, which does not
        # count.
        self._selected = first is not None or (self._selected and track.state is TrackState.ACQUIRING)
        confirmed = track.state is TrackState.TRACKING or self._selected
        return Claim(track.box, confirmed and track.measured)


@dataclass(frozen=True)
class Return:
    """Result of one disappearance.

    Attributes:
        hidden_s: Time in which nothing of the target was visible.
        lost_before: Whether the tracker did not claim the target in the last 5 frames that showed at least
            half of it. Then the return is not credited.
        regained: Whether the tracker, not lost before, claimed the target in time after its return, with an
            IoU with the visible part of at least 0.5 (0.3 if this part is smaller than 16 px).
        regained_after_s: Time from the return to that claim, NaN without one.
        wrong: Whether at least 3 successive claims, from the disappearance to the end of the time allowed,
            overlapped the target's outline (hidden or not) by less than 0.1.
    """

    hidden_s: float
    lost_before: bool
    regained: bool
    regained_after_s: float
    wrong: bool


@dataclass(frozen=True)
class Verdict:
    """Result of one clip.

    ``present``, ``absent``: numbers of frames in which at least 0.3 of the target, or nothing of it, is
    visible; other frames are not counted. ``claimed_present``, ``claimed_absent``: numbers of these frames
    that are claimed. ``ao``: mean overlap of the boxes with the visible part over the present frames after
    the first; a frame without a box counts as 0. ``returns``: one result per disappearance.
    """

    present: int
    claimed_present: int
    absent: int
    claimed_absent: int
    ao: float
    returns: tuple[Return, ...]


@dataclass(frozen=True)
class Judgement:
    """Results of all clips. Shares are 0..1, NaN if there is nothing to count."""

    verdicts: tuple[Verdict, ...]

    @property
    def returns(self) -> list[Return]:
        return [r for verdict in self.verdicts for r in verdict.returns]

    @property
    def sensitivity(self) -> float:
        """Share of present frames that are claimed, over all clips."""
        return _share(sum(v.claimed_present for v in self.verdicts), sum(v.present for v in self.verdicts))

    @property
    def specificity(self) -> float:
        """Share of absent frames that are not claimed, over all clips."""
        return 1 - _share(sum(v.claimed_absent for v in self.verdicts), sum(v.absent for v in self.verdicts))

    @property
    def balanced_accuracy(self) -> float:
        return (self.sensitivity + self.specificity) / 2

    @property
    def regained(self) -> float:
        return _share(sum(r.regained for r in self.returns), len(self.returns))

    @property
    def wrong(self) -> float:
        return _share(sum(r.wrong for r in self.returns), len(self.returns))

    @property
    def lost_before(self) -> float:
        return _share(sum(r.lost_before for r in self.returns), len(self.returns))

    @property
    def ao(self) -> float:
        """Mean over the clips of the average overlap."""
        return float(np.mean([v.ao for v in self.verdicts])) if self.verdicts else math.nan

    def figures(self) -> dict[str, float]:
        names = ("balanced_accuracy", "sensitivity", "specificity", "regained", "wrong", "lost_before", "ao")
        return {name: getattr(self, name) for name in names}


def _share(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


def score(
    truth: Sequence[Truth],
    disappearances: Sequence[Disappearance],
    fps: float,
    claims: Sequence[Claim],
    regain_s: float,
) -> Verdict:
    """Score the claims of one clip, one claim per frame.

    ``regain_s``: time after its return within which the target must be claimed. Raises ValueError if there is
    not one claim per frame.
    """
    if len(claims) != len(truth):
        raise ValueError(f"{len(claims)} claims for {len(truth)} frames")
    # The first frame is the selection itself, so it is not scored.
    present = [i for i in range(1, len(truth)) if truth[i].share >= PRESENT_SHARE]
    absent = [i for i, t in enumerate(truth) if t.share == 0]
    overlaps = [_overlap(claims[i].box, truth[i].box) for i in present]
    return Verdict(
        len(present),
        sum(claims[i].present for i in present),
        len(absent),
        sum(claims[i].present for i in absent),
        float(np.mean(overlaps)),
        tuple(_return(truth, one, fps, claims, regain_s) for one in disappearances),
    )


def _return(
    truth: Sequence[Truth],
    one: Disappearance,
    fps: float,
    claims: Sequence[Claim],
    regain_s: float,
) -> Return:
    end = min(one.back + round(regain_s * fps), len(truth) - 1)
    seen = [i for i in range(one.first) if truth[i].share >= BACK_SHARE]
    lost_before = not any(_hits(claims[i], truth[i]) for i in seen[-BEFORE_FRAMES:])
    hit = next((i for i in range(one.back, end + 1) if _hits(claims[i], truth[i])), None)
    span = range(seen[-1] + 1, end + 1)
    missing = [claims[i].present and _overlap(claims[i].box, truth[i].outline) < WRONG_IOU for i in span]
    return Return(
        (one.last - one.first + 1) / fps,
        lost_before,
        hit is not None and not lost_before,
        math.nan if hit is None else (hit - one.back) / fps,
        any(run >= WRONG_FRAMES for run in _runs(missing)),
    )


def _hits(claim: Claim, truth: Truth) -> bool:
    if truth.box is None or not claim.present:
        return False
    least = SMALL_HIT_IOU if truth.box.size < SMALL_PX else HIT_IOU
    return _overlap(claim.box, truth.box) >= least


def _overlap(claimed: Box | None, true: Box | None) -> float:
    return 0.0 if claimed is None or true is None else iou(claimed, true)


def _runs(flags: Sequence[bool]) -> list[int]:
    """Return for each index the length of the run of true flags that ends there."""
    runs = []
    count = 0
    for flag in flags:
        count = count + 1 if flag else 0
        runs.append(count)
    return runs
