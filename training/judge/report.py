"""Report what the tracker made of recorded clips, by kind and half.

AO: mean overlap. False claims: share of the images with a measured box that misses the target (overlap below
0.1), or without the target. Unclaimed: share of the images with the target in view and without a measured
box. Found: of the clips with an event, the share in which the target is claimed within a second after it.
Wrong: the share with three images in a row in that second in which something else is claimed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from efftam_ros.core.geometry import iou
from efftam_ros.tools.common.terminal import Cell, print_table
from training.judge.clips import KINDS
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

WITHIN_NS, WRONG_IMAGES = 1_000_000_000, 3
SILENT_SHARE = 0.1
HEADERS = ("clips", "number", "AO", "false claims", "unclaimed", "silent", "found in 1 s", "wrong")


class Outcome:
    """What the tracker made of one recording."""

    def __init__(self, recording: Recording) -> None:
        columns = recording.columns
        event = int(columns["event"])
        stamps, measured = columns["frame_stamp_ns"], columns["frame_measured"]
        back_ns = int(stamps[np.searchsorted(columns["frame_index"], event)]) if event else 0
        self.overlaps: list[float] = []
        false, seen, unclaimed, run = 0, 0, 0, 0
        self.found: bool | None = False if event else None
        self.wrong = False
        for row in range(1, len(stamps)):
            truth, box = box_of(columns["frame_truth"][row]), box_of(columns["frame_box"][row])
            overlap = 0.0 if truth.is_empty or box.is_empty else iou(truth, box)
            claims = bool(measured[row])
            misses = claims and overlap < WRONG_IOU
            false += misses
            if not truth.is_empty:
                self.overlaps.append(overlap)
                seen, unclaimed = seen + 1, unclaimed + (not claims)
            if event and 0 <= int(stamps[row]) - back_ns <= WITHIN_NS:
                least = SMALL_RIGHT_IOU if truth.size < SMALL_PX else RIGHT_IOU
                self.found = self.found or (claims and overlap >= least)
                run = run + 1 if misses else 0
                self.wrong = self.wrong or run >= WRONG_IMAGES
        count = len(stamps) - 1
        self.ao, self.false = float(np.mean(self.overlaps or [np.nan])), false / max(count, 1)
        self.unclaimed = unclaimed / max(seen, 1)


def outcome_rows(recordings: Sequence[Recording]) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for half in HALVES:
        for kind in KINDS:
            of = [Outcome(one) for one in recordings if one.half == half and one.kind == kind]
            if of:
                rows.append([f"{half}, {kind}", *_cells(of)])
    return rows


def _cells(of: Sequence[Outcome]) -> list[Cell]:
    events = [one for one in of if one.found is not None]
    return [
        len(of),
        float(np.nanmean([one.ao for one in of])),
        float(np.mean([one.false for one in of])),
        float(np.mean([one.unclaimed for one in of])),
        sum(one.false > SILENT_SHARE for one in of),
        float(np.mean([bool(one.found) for one in events])) if events else float("nan"),
        float(np.mean([one.wrong for one in events])) if events else float("nan"),
    ]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recordings", type=Path, metavar="FOLDER", help="of `record`")
    parser.add_argument("--variant", metavar="NAME", help="only recordings of this variant")
    parser.add_argument(
        "--against", type=Path, metavar="FOLDER", help="others of the same clips, clip by clip"
    )


def run(args: argparse.Namespace) -> int:
    recordings = read_recordings(args.recordings)
    if args.variant:
        recordings = [one for one in recordings if one.path.stem.endswith(f".{args.variant}")]
    if args.against is not None:
        others = {one.path.stem: one for one in read_recordings(args.against)}
        recordings = [one for one in recordings if one.path.stem in others]
        others = {one.path.stem: others[one.path.stem] for one in recordings}
        rows: list[list[Cell]] = []
        for one in recordings:
            here, there = Outcome(one), Outcome(others[one.path.stem])
            figures = (("ao", here.ao, there.ao), ("false", here.false, there.false))
            if any(abs(a - b) > 0.03 for _, a, b in figures) or here.found != there.found:
                cells: list[Cell] = [one.path.stem, there.ao, here.ao, there.false, here.false]
                rows.append([*cells, str(there.found), str(here.found)])
        print_table(("clip that differs", "AO", "now", "false", "now", "found", "now"), rows)
        print_table(HEADERS, outcome_rows(list(others.values())), title="before")
    print_table(HEADERS, outcome_rows(recordings), title="the tracker")
    return 0
