"""Fit the three numbers of the confidence in a claim, and report how well confidence and truth agree.

The log-odds that a claimed box is on the target fall with what is missing of the target's usual likeness, and
with the change of its area (`CLAIM_LOG_ODDS`, `CLAIM_DEFICIT` and `CLAIM_AREA` in
efftam_ros/core/policies/constants.py). They are fitted to the claims of the choosing half. Each footage is
left out in turn, and the scale is that at which the log-odds of the left-out footage agree best with its
truth: in a scene that nobody has seen the numbers order claims less well than in those that they were fitted
to.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.gallery import Looks
from efftam_ros.core.geometry import iou
from efftam_ros.core.policies.constants import CLAIM_AREA, CLAIM_DEFICIT, CLAIM_LOG_ODDS
from efftam_ros.core.types import TrackState
from efftam_ros.tools.common.terminal import Cell, print_table
from training.judge.logistic import area, calibration_error, evened, fit, left_out, reliability
from training.judge.record import OWN_VIEW
from training.judge.replay import (
    BLANK,
    SMALL_RIGHT_IOU,
    WRONG_IOU,
    Recording,
    Replay,
    box_of,
    read_recordings,
)
from training.reacquisition.footage import HALVES

LIMITS = (0.0, 0.5, 0.8, 0.9, 0.95)
"""Values of `least_confidence` in the report."""
SIGNS = np.array([-1.0, -1.0])
Array = NDArray[np.float64]


class Claim(NamedTuple):
    """A claimed box of a recording.

    ``deficit``: by how much it is less like the target than usual; ``change``: absolute logarithm of its area
    as a share of the usual one; ``right``: 1 on the target, 0 beside it.
    """

    deficit: float
    change: float
    right: float


def claims_of(recording: Recording) -> list[Claim]:
    """Return the claims of a recording after the selection, except of boxes that show a part of the
    target."""
    return list(_Claims(recording).run())


class _Claims(Replay):
    def run(self) -> Iterator[Claim]:
        columns = self.columns
        is_unbroken = True  # since the selection
        for row in range(1, len(columns["frame_stamp_ns"])):
            if not columns["frame_measured"][row]:
                self.gallery.miss()
                is_unbroken = False
                continue
            state, shown = TrackState(int(columns["frame_state"][row])), self.shown(row)
            is_unbroken = is_unbroken and state is TrackState.ACQUIRING
            if OWN_VIEW not in shown.windows:
                continue
            is_confirmed = state is TrackState.TRACKING or is_unbroken
            _, box = self.claimed(row, shown)
            looks = Looks(self.gallery, BLANK, shown.describe)
            deficit = self.gallery.deficit_now
            if not is_confirmed:  # what may be a return is described in the same image
                deficit = self.gallery.deficit(looks.likeness(box))
            usual, truth = self.policy.model.usual_area, box_of(columns["frame_truth"][row])
            overlap = 0.0 if truth.is_empty else iou(box_of(columns["frame_box"][row]), truth)
            if math.isfinite(deficit) and not WRONG_IOU <= overlap < SMALL_RIGHT_IOU:
                change = 0.0 if usual is None else abs(math.log(box.area / usual))
                yield Claim(deficit, change, float(overlap >= SMALL_RIGHT_IOU))
            if is_confirmed:
                self.confirm(row, shown)


class Claims(NamedTuple):
    """Claims of many recordings. ``x``: [n, 2] deficit and change; ``y``: [n] right; ``footage``: [n]
    numbers."""

    x: Array
    y: Array
    footage: NDArray[np.int64]


def gathered(recordings: Sequence[Recording]) -> Claims:
    names = sorted({one.footage for one in recordings})
    rows = [(*claim, names.index(one.footage)) for one in recordings for claim in claims_of(one)]
    table = np.array(rows, float).reshape(-1, 4)
    return Claims(table[:, :2], table[:, 2], table[:, 3].astype(np.int64))


def fitted(claims: Claims) -> tuple[float, float, float]:
    """Return log-odds of a claim as usual, and by how much they fall with deficit and change."""
    weight = evened(claims.footage)
    weights, offset = fit(claims.x, claims.y, weight, SIGNS)
    odds = left_out(claims.x, claims.y, claims.footage, SIGNS, weight)
    (scale,), shift = fit(odds[:, None], claims.y, weight, np.array([1.0]))
    return float(scale * offset + shift), float(-scale * weights[0]), float(-scale * weights[1])


def probability(claims: Claims, numbers: tuple[float, float, float]) -> Array:
    odds = numbers[0] - claims.x @ np.array(numbers[1:])
    return np.asarray(1 / (1 + np.exp(-odds)), np.float64)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recordings", type=Path, nargs="+", metavar="FOLDER", help="of `record`")


def run(args: argparse.Namespace) -> int:
    recordings = [one for folder in args.recordings for one in read_recordings(folder)]
    claims = {half: gathered([one for one in recordings if one.half == half]) for half in HALVES}
    shipped = CLAIM_LOG_ODDS, CLAIM_DEFICIT, CLAIM_AREA
    names = ("CLAIM_LOG_ODDS", "CLAIM_DEFICIT", "CLAIM_AREA")
    found: list[list[Cell]] = [
        list(row) for row in zip(names, shipped, fitted(claims["choosing"]), strict=True)
    ]
    print_table(("", "ships", "fitted on the choosing half"), found)
    for half, of in claims.items():
        confidence = probability(of, shipped)
        bins = reliability(confidence, of.y)
        title = f"{half} half: area {area(confidence, of.y):.3f}, mean error {calibration_error(bins):.3f}"
        print_table(("confidence", "right", "claims"), [list(row) for row in bins], title=title)
        kept: list[list[Cell]] = [
            [least, *(float(np.mean(confidence[of.y == right] >= least)) for right in (1, 0))]
            for least in LIMITS
        ]
        print_table(("least confidence", "right claims kept", "wrong claims kept"), kept)
    return 0
