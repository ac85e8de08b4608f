"""What would be accepted first of each missed target: the recorded misses, judged by the policy as it is now.

A recording holds what the network showed in each image in which the tracker missed its target. The policy is
asked about these images again, until it accepts something or the recorded tracker had the target back. So a
rule of returns is tried on hundreds of misses in seconds. What is not replayed: the windows that a changed
rule would have looked at in place of the recorded ones, and what follows an acceptance. Whole runs tell that
(`report --against`).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from efftam_ros.core.gallery import Looks
from efftam_ros.core.geometry import iou
from efftam_ros.core.policies.search import Reacquisition
from efftam_ros.core.types import MISSED, Motion, TrackState
from efftam_ros.tools.common.terminal import Cell, print_table
from training.judge.record import OWN_VIEW
from training.judge.replay import (
    BLANK,
    RIGHT_IOU,
    SMALL_PX,
    SMALL_RIGHT_IOU,
    WRONG_IOU,
    Recording,
    Replay,
    Shown,
    box_of,
    read_recordings,
)
from training.reacquisition.footage import HALVES

HEADERS = ("half", "misses", "the target first", "something else", "a part", "nothing", "images waited")


@dataclass
class Miss:
    """One time a recorded tracker missed its target.

    ``overlap``: with the true box, of what the policy accepts first, None where it accepts nothing;
    ``least``: from which that is the target; ``waited``: images before it with the target among the
    candidates.
    """

    recording: Recording
    row: int
    overlap: float | None = None
    least: float = RIGHT_IOU
    waited: int = 0

    @property
    def outcome(self) -> str:
        if self.overlap is None:
            return "nothing"
        if self.overlap >= self.least:
            return "the target first"
        return "something else" if self.overlap < WRONG_IOU else "a part"


def misses(recording: Recording) -> list[Miss]:
    """The misses of a recording, each with what the policy accepts first."""
    return _Misses(recording).run()


class _Misses(Replay):
    def __init__(self, recording: Recording) -> None:
        super().__init__(recording)
        self.found: list[Miss] = []
        self.is_missing = False  # in the recording
        self.is_open = False  # and nothing has been accepted yet

    def run(self) -> list[Miss]:
        columns = self.columns
        stamps, states, measured = (columns[f"frame_{name}"] for name in ("stamp_ns", "state", "measured"))
        selected = True  # since the selection, without a miss
        for row in range(1, len(stamps)):
            shown, stamp, state = self.shown(row), int(stamps[row]), TrackState(int(states[row]))
            before, gap_s = TrackState(int(states[row - 1])), (stamp - int(stamps[row - 1])) * 1e-9
            if gap_s > self.config.max_gap:
                before = TrackState.LOST
            if not measured[row] and not self.is_missing:
                self._begin(row)
            if self.is_open:
                self._judge(row, stamp, before, shown)
            selected = selected and bool(measured[row]) and state is TrackState.ACQUIRING
            if not measured[row]:
                self.gallery.miss()
            elif (state is TrackState.TRACKING or selected) and OWN_VIEW in shown.windows:
                self.is_missing = self.is_open = False
                self.confirm(row, shown)
        return self.found

    def _begin(self, row: int) -> None:
        """The target was last seen in the image before this one."""
        columns = self.columns
        self.is_missing = self.is_open = True
        self.found.append(Miss(self.recording, row))
        self.search = Reacquisition()
        box, motion = box_of(columns["frame_estimate"][row - 1]), None
        if not box.is_empty:
            velocity = columns["frame_velocity"][row - 1]
            vx, vy = (float(value) for value in (velocity if np.isfinite(velocity).all() else (0.0, 0.0)))
            ground = Motion(int(columns["frame_stamp_ns"][row - 1]), box, (vx, vy), np.eye(4))
            motion = SimpleNamespace(ground=ground)
        camera = columns["frame_camera"][row]
        self.search.is_camera_known = bool(np.isfinite(camera).all())
        self.search.begin(self.size, motion)  # type: ignore[arg-type]

    def _judge(self, row: int, stamp: int, before: TrackState, shown: Shown) -> None:
        miss = self.found[-1]
        if row != miss.row:
            camera = self.columns["frame_camera"][row]
            self.search.is_camera_known = bool(np.isfinite(camera).all())
            self.search.follow_camera(camera if self.search.is_camera_known else None)
        looks = Looks(self.gallery, BLANK, shown.describe)
        searched = [one for window, one in sorted(shown.windows.items()) if window != OWN_VIEW]
        if searched:
            weighed = self.policy.detections([candidates for _, candidates in searched], looks)
            self.search.observe(stamp, [(v, one) for (v, _), one in zip(searched, weighed, strict=True)])
        if OWN_VIEW not in shown.windows:
            return
        view, own = shown.windows[OWN_VIEW]
        if before not in MISSED:
            (weighed_own,) = self.policy.detections([own], looks)
            self.search.observe(stamp, [(view, weighed_own)])
            return
        choice = self.policy.choose(own, self.context(row, before, view, looks))
        truth = box_of(self.columns["frame_truth"][row])
        miss.least = SMALL_RIGHT_IOU if truth.size < SMALL_PX else RIGHT_IOU
        if choice.box is not None:
            miss.overlap = 0.0 if truth.is_empty else iou(choice.box, truth)
            self.is_open = False
        elif not truth.is_empty:
            boxes = [box for _, candidates in shown.windows.values() for _, box in candidates.visible]
            miss.waited += any(iou(box, truth) >= miss.least for box in boxes)


def outcome_rows(found: Sequence[Miss]) -> Iterator[list[Cell]]:
    for half in HALVES:
        of = [one for one in found if one.recording.half == half]
        if of:
            counts: list[Cell] = [sum(one.outcome == name for one in of) for name in HEADERS[2:6]]
            yield [half, len(of), *counts, sum(one.waited for one in of)]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recordings", type=Path, nargs="+", metavar="FOLDER", help="of `record`")


def run(args: argparse.Namespace) -> int:
    recordings = [one for folder in args.recordings for one in read_recordings(folder)]
    print_table(HEADERS, list(outcome_rows([miss for one in recordings for miss in misses(one)])))
    return 0
