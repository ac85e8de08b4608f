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
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.gallery import Gallery, Looks
from efftam_ros.core.geometry import Box, View, iou
from efftam_ros.core.policies.base import Choice, FrameContext
from efftam_ros.core.policies.default import DefaultPolicy
from efftam_ros.core.policies.search import Reacquisition
from efftam_ros.core.types import MISSED, Candidates, Frame, Image, Motion, PipelineSpec, TrackState
from efftam_ros.tools.common.terminal import Cell, print_table
from training.judge.record import OWN_VIEW
from training.judge.replay import (
    RIGHT_IOU,
    SMALL_PX,
    SMALL_RIGHT_IOU,
    WRONG_IOU,
    Recording,
    box_of,
    read_recordings,
)
from training.reacquisition.footage import HALVES

SPEC = PipelineSpec("recorded", 192, 7, None, 16, 24)
BLANK = Image.from_array(np.zeros((1, 1, 3), np.uint8))
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


@dataclass
class _Shown:
    """An image: candidates and view by window, and vectors by box."""

    windows: dict[int, tuple[View, Candidates]] = field(default_factory=dict)
    vectors: dict[Box, NDArray[np.float32]] = field(default_factory=dict)

    def describe(self, image: Image, boxes: Sequence[Box]) -> NDArray[np.float32]:
        return np.stack([self.vectors[box] for box in boxes])


def misses(recording: Recording) -> list[Miss]:
    """The misses of a recording, each with what the policy accepts first."""
    return _Replay(recording).run()


class _Replay:
    def __init__(self, recording: Recording) -> None:
        self.recording, self.columns = recording, recording.columns
        self.config = TrackerConfig()
        self.policy, self.gallery, self.search = DefaultPolicy(SPEC, self.config), Gallery(), Reacquisition()
        width, height = (int(side) for side in self.columns["frame_size"][0])
        self.size = width, height
        self.confirmed_ns: int | None = None
        self.found: list[Miss] = []
        self.is_missing = False  # in the recording
        self.is_open = False  # and nothing has been accepted yet

    def run(self) -> list[Miss]:
        columns = self.columns
        stamps, states, measured = (columns[f"frame_{name}"] for name in ("stamp_ns", "state", "measured"))
        self.gallery.add_prompt(columns["frame_prompt"][0].astype(np.float32), int(stamps[0]))
        selected = True  # since the selection, without a miss
        for row in range(1, len(stamps)):
            shown, stamp, state = self._shown(row), int(stamps[row]), TrackState(int(states[row]))
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
                self._confirm(row, stamp, shown)
        return self.found

    def _shown(self, row: int) -> _Shown:
        columns, shown = self.columns, _Shown()
        if "candidate_frame" not in columns:
            return shown
        rows = np.flatnonzero(columns["candidate_frame"] == row)
        for window in sorted(set(columns["candidate_window"][rows].tolist())):
            at = rows[columns["candidate_window"][rows] == window]
            x, y, width, height = (float(value) for value in columns["candidate_view"][at[0]])
            boxes = columns["candidate_box"][at]
            edges = np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1).astype(np.float32)
            areas, ious = (
                columns[f"candidate_{name}"][at].astype(np.float32) for name in ("area", "quality")
            )
            candidates = Candidates(edges, areas, ious, float(columns["candidate_logit"][at[0]]))
            shown.windows[window] = View(x, y, 1.0 / width, 1.0 / height, 1), candidates
            for number, box in candidates.visible:
                shown.vectors[box] = columns["candidate_vector"][at[number]].astype(np.float32)
        return shown

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

    def _judge(self, row: int, stamp: int, before: TrackState, shown: _Shown) -> None:
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
        choice = self.policy.choose(own, self._context(row, stamp, before, view, looks))
        truth = box_of(self.columns["frame_truth"][row])
        miss.least = SMALL_RIGHT_IOU if truth.size < SMALL_PX else RIGHT_IOU
        if choice.box is not None:
            miss.overlap = 0.0 if truth.is_empty else iou(choice.box, truth)
            self.is_open = False
        elif not truth.is_empty:
            boxes = [box for _, candidates in shown.windows.values() for _, box in candidates.visible]
            miss.waited += any(iou(box, truth) >= miss.least for box in boxes)

    def _context(self, row: int, stamp: int, before: TrackState, view: View, looks: Looks) -> FrameContext:
        predicted = box_of(self.columns["frame_estimate"][row])
        motion: Any = None if predicted.is_empty else SimpleNamespace(box=predicted)
        return FrameContext(
            Frame(BLANK, stamp),
            self.size,
            before,
            self.search,
            looks,
            motion=motion,
            view=view,
            is_confirmed=False,
            confirmed_ns=self.confirmed_ns,
        )

    def _confirm(self, row: int, stamp: int, shown: _Shown) -> None:
        """The recorded tracker has the target."""
        self.is_missing = self.is_open = False
        self.confirmed_ns = stamp
        view, own = shown.windows[OWN_VIEW]
        claimed = box_of(self.columns["frame_box"][row])
        index, box = max(own.visible, key=lambda one: iou(one[1], claimed))
        looks = Looks(self.gallery, BLANK, shown.describe)
        context = self._context(row, stamp, TrackState.TRACKING, view, looks)
        keeps = self.policy.keeps(own, Choice(index, True, box), context, True)
        if self.gallery.is_due(stamp):
            self.gallery.look(shown.vectors[box], stamp, keeps)


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
