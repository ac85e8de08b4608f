"""Looks at whole images with a memory that is frozen: does the network see the target, and rank it first?

The tracker follows the target from the first frame to a frame of known truth; from then on nothing is
remembered. Some seconds later the whole image is looked at in windows of the tracker's own scale and of half
of it, and all candidates are ranked by presence x predicted IoU. This separates what the network can find
from how the search looks for it.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import cv2
import numpy as np

from efftam_ros.core.contract import Pipeline
from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box, View, iou
from efftam_ros.core.tracker import TargetTracker
from efftam_ros.core.types import Candidates, Frame, Image, Prompt
from efftam_ros.runtime.opening import open_pipeline, open_tracker
from efftam_ros.tools.common.options import (
    add_network_arguments,
    add_tracker_arguments,
    pipeline_config,
    tracker_config,
)
from efftam_ros.tools.common.terminal import Cell, print_table, progress_bar
from training.disappearance import HIT_IOU, SMALL_HIT_IOU, SMALL_PX
from training.reacquisition.footage import Footage, find_footage

LEARNED_S = 2.0  # the target is followed for this long, then the memory is frozen
LATER_S = (3.0, 5.0, 7.0, 10.0)  # after that, as far as the clip goes
SCALES = (1.0, 0.5)  # of the windows, in sides of the window that follows the target
STEP = 0.6  # distance of neighbouring windows, in their sides
AT_ONCE = 16  # windows of one search
LEAST_PRESENCE = 0.5
ONE_IOU = 0.3  # of two candidates from which they show one thing
NS = 1_000_000_000


@dataclass(frozen=True)
class Thing:
    """Something that a look shows. ``score``: presence x predicted IoU."""

    box: Box
    score: float


@dataclass(frozen=True)
class WholeImageLook:
    """One image looked at. ``rank``: the target's place among the things found, from 1 on; None when it is
    not among them. ``things``: how many were found."""

    clip: str
    later_s: float
    size_px: float
    windows: int
    things: int
    rank: int | None


def windows_over(image_size: tuple[int, int], extent_px: float, side: int) -> list[View]:
    """Square windows of ``extent_px`` image px that cover an image, overlapping by 40 %."""
    axes = []
    for length in image_size:
        count = max(1, math.ceil((length - extent_px) / (STEP * extent_px)) + 1)
        half = extent_px / 2
        axes.append([length / 2] if count == 1 else list(np.linspace(half, length - half, count)))
    return [View.window(float(x), float(y), extent_px, side) for x in axes[0] for y in axes[1]]


def things_in(found: Sequence[Candidates]) -> list[Thing]:
    """All that the windows show with a presence above 0.5, best first by presence x predicted IoU; of
    candidates that overlap the best alone."""
    scored = [
        Thing(seen.box(i), seen.presence * float(seen.ious[i]))
        for seen in found
        if seen.is_finite and seen.presence > LEAST_PRESENCE
        for i in range(len(seen))
        if not seen.box(i).is_empty
    ]
    things: list[Thing] = []
    for one in sorted(scored, key=lambda one: -one.score):
        if all(iou(one.box, other.box) < ONE_IOU for other in things):
            things.append(one)
    return things


def rank_of(target: Box, things: Sequence[Thing]) -> int | None:
    """The place of the first thing that is the target, from 1 on."""
    least = SMALL_HIT_IOU if target.size < SMALL_PX else HIT_IOU
    return next((n for n, one in enumerate(things, 1) if iou(one.box, target) >= least), None)


def looks_at(clip: Footage) -> tuple[int, list[int]]:
    """The frame at which a clip's memory is frozen, and those that are looked at; the target shows in all."""
    shown = [i for i in range(len(clip)) if clip.box(i) is not None]
    frozen = max((i for i in shown if i <= LEARNED_S * clip.fps), default=0)
    last = shown[-1]
    later = {frozen + round(s * clip.fps) for s in LATER_S}
    return frozen, sorted(i for i in later if i <= last and clip.box(i) is not None)


def look_over(
    tracker: TargetTracker, pipeline: Pipeline, clip: Footage, factor: float
) -> Iterator[WholeImageLook]:
    """Look at a clip's later images with the memory of its first seconds. ``pipeline``: the tracker's."""
    frozen, later = looks_at(clip)
    if not later:
        return
    pictures = clip.pictures([*range(frozen + 1), *later])
    for index in range(frozen + 1):
        frame = Frame(Image.from_array(pictures[index]), NS + round(index / clip.fps * NS))
        first = clip.box(0)
        assert first is not None  # `find_footage` leaves out clips that do not start with their target
        tracker.step(frame, Prompt(box=first) if index == 0 else None)
        tracker.commit()
    side = pipeline.spec.image_side
    for index in later:
        image, truth = Image.from_array(pictures[index]), clip.box(index)
        assert truth is not None
        extent = factor * truth.size
        views = [
            view for scale in SCALES for view in windows_over((clip.width, clip.height), scale * extent, side)
        ]
        found: list[Candidates] = []
        for start in range(0, len(views), AT_ONCE):
            found += pipeline.search(image, views[start : start + AT_ONCE], tracker.memory.plan())
        things = things_in(found)
        seconds = (index - frozen) / clip.fps
        yield WholeImageLook(clip.name, seconds, truth.size, len(views), len(things), rank_of(truth, things))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = __doc__
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="folders of clips")
    add_network_arguments(parser)
    add_tracker_arguments(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every look to this file")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run(args: argparse.Namespace) -> int:
    clips = [clip for clip in find_footage(args.folders) if looks_at(clip)[1]]
    if not clips:
        raise InputError(
            f"no clip there shows its target {LATER_S[0]:g} s after the first {LEARNED_S:g} s; give others"
        )
    cv2.setNumThreads(args.threads)
    pipeline = open_pipeline(pipeline_config(args))
    looks: list[WholeImageLook] = []
    try:
        config = tracker_config(args.settings, policy=args.policy, view=args.view)
        factor = config.window_factor or pipeline.spec.window_factor
        with progress_bar(len(clips), "clips", unit="clip", quiet=args.quiet) as bar:
            for clip in clips:
                looks += look_over(open_tracker(pipeline, config), pipeline, clip, factor)
                bar.update()
    finally:
        pipeline.close()
    rows = [_row(clip.name, [one for one in looks if one.clip == clip.name]) for clip in clips]
    print_table(
        ("clip", "px", "looks", "seen", "ranked first", "ranks", "windows"),
        [*rows, _row("all", looks)],
        title="whole images with a frozen memory",
    )
    if args.json is not None:
        args.json.write_text(json.dumps([asdict(one) for one in looks], indent=1) + "\n", encoding="utf-8")
    return 0


def _row(name: str, looks: Sequence[WholeImageLook]) -> list[Cell]:
    ranks = ["-" if one.rank is None else str(one.rank) for one in looks]
    return [
        name,
        float(np.median([one.size_px for one in looks])),
        len(looks),
        sum(one.rank is not None for one in looks),
        sum(one.rank == 1 for one in looks),
        " ".join(ranks),
        sum(one.windows for one in looks),
    ]
