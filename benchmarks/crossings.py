"""Counts id switches of two targets that cross, followed one by one and both together.

Crossings are made from sequences with masks (--cast) of one kind of object. The object of one sequence is cut
out and drawn into another sequence, or into its own. It has the size of the object there, and passes through
it at the middle of the clip, in front of it or behind it.

drawn: the objects are of two sequences. twin: the second object is a mirrored copy of the first, 7 images
late.
switched: runs with an id switch (the measured box of another target than before lies on an object), or with
a target that ended on the other object. Every repeat of a crossing is a run.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.errors import InputError
from efftam_ros.images.source import VideoFrame
from efftam_ros.runtime.opening import open_pipeline
from efftam_ros.tools.common.options import (
    add_backend_arguments,
    add_quiet_argument,
    add_settings_argument,
    pipeline_config,
    tracker_config,
)
from efftam_ros.tools.common.outputs import Output, check_outputs, write_text
from efftam_ros.tools.common.terminal import Cell, print_table, progress_bar
from efftam_workshop.eval.command import Group, OwnTracker, one_pass
from efftam_workshop.eval.metrics import Identities, identities
from efftam_workshop.eval.sequences import Sequence, find_sequences, mask_box

MAX_FRAMES = 60
SMOOTHED = 15  # images over which the first object's place and size are averaged
APART = 1.3  # distance of the objects' centres in the first and last image, in sizes of the first object
LAG = 7  # by how many images a twin is later than its original
MIN_SHOWN = 0.1  # an object has a true box if at least this share of its pixels is visible
EDGE_BLUR = 0.7  # px; with hard edges a drawn object would not look like a part of the image
# Directions of the drawn object's path, degrees, in order of preference.
ANGLES = (0, 180, 15, 195, -15, 165, 30, 210, -30, 150)
ENOUGH_SHOWN = 0.9  # share of the drawn object that must be inside the image at both ends of its path

Pixels = NDArray[np.uint8]
Mask = NDArray[np.bool_]


class Crossing(NamedTuple):
    """Two objects that cross in one video. ``group``: a sequence for each; ``kind``: "drawn" or "twin"."""

    kind: str
    group: Group


def add_arguments(parser: argparse.ArgumentParser) -> None:
    scenes = parser.add_argument_group("crossings")

    def folders(text: str) -> list[Path]:
        return [Path(one) for one in text.split(",")]

    scenes.add_argument(
        "--cast",
        action="append",
        type=folders,
        required=True,
        metavar="A,B",
        help="sequences, with masks, of one kind of object; may be repeated",
    )
    scenes.add_argument("--half", choices=("even", "odd"), help="only every second crossing")
    scenes.add_argument(
        "--repeats", type=int, default=5, metavar="N", help="jittered runs of each crossing (5)"
    )
    add_backend_arguments(parser)
    add_settings_argument(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the counts of every crossing")
    add_quiet_argument(parser)


def run(args: argparse.Namespace) -> int:
    check_outputs([Output("--json", args.json)])
    planned = [one for cast in args.cast for one in plan([_only(folder) for folder in cast])]
    if args.half is not None:
        planned = planned[args.half == "odd" :: 2]
    crossings = [crossing_of(*one) for one in planned]
    counts = measured(args, crossings, tracker_config(args.settings))
    rows: list[list[Cell]] = [
        [
            one.group[0].video,
            one.kind,
            *(cell for way in counts for cell in _cells(counts[way][one.group[0].video])),
        ]
        for one in crossings
    ]
    ways = list(counts)
    print_table(["crossing", "kind", *(f"{way}: {what}" for way in ways for what in CELLS)], rows)
    print_table(
        ["", "crossings", *(f"switched, {way}" for way in ways)],
        [[kind, *cells] for kind, cells in _summary(crossings, counts, args.repeats).items()],
        title=f"\n{args.repeats} run{'s'[: args.repeats > 1]} of each",
    )
    if args.json is not None:
        record = {
            way: {name: [one._asdict() for one in runs] for name, runs in of.items()}
            for way, of in counts.items()
        }
        write_text(args.json, json.dumps(record, indent=1) + "\n")
    return 0


Counts = dict[str, dict[str, list[Identities]]]
"""Results by the way of following ("one by one", "together"), then by crossing: one for each repeat."""
CELLS = ("switches", "on the other")


def measured(args: argparse.Namespace, crossings: list[Crossing], config: TrackerConfig) -> Counts:
    """Follow the targets of every crossing one by one, then both at once; returns the id switches."""
    counts: Counts = {"one by one": defaultdict(list), "together": defaultdict(list)}
    total = sum(4 * len(one.group[0]) for one in crossings) * args.repeats
    opened = open_pipeline(pipeline_config(args, max_targets=2))
    with closing(opened) as pipeline, progress_bar(total, "crossings", quiet=args.quiet) as bar:
        tracker = OwnTracker(pipeline, config)
        for crossing in crossings:
            truths = np.stack([one.boxes for one in crossing.group])
            for repeat in range(1, args.repeats + 1):
                for way, groups in zip(
                    counts, ([[one] for one in crossing.group], [crossing.group]), strict=True
                ):
                    passes = [one for group in groups for one in one_pass(tracker, group, repeat, bar.update)]
                    kept = identities(truths, np.stack([one.measured for one in passes]))
                    counts[way][crossing.group[0].video].append(kept)
    return counts


def _cells(runs: list[Identities]) -> list[int]:
    return [sum(one.switches for one in runs), sum(one.another for one in runs)]


def _summary(crossings: list[Crossing], counts: Counts, repeats: int) -> dict[str, list[Cell]]:
    """Count the switched runs.

    Returns a row for each kind and for "all": the number of runs, then the number of switched runs for each
    way of following.
    """
    rows: dict[str, list[Cell]] = {}
    for kind in [*dict.fromkeys(one.kind for one in crossings), "all"]:
        names = [one.group[0].video for one in crossings if kind in (one.kind, "all")]
        wrong = [
            sum(bool(one.switches or one.another) for name in names for one in of[name])
            for of in counts.values()
        ]
        rows[kind] = [len(names) * repeats, *wrong]
    return rows


def _only(folder: Path) -> Sequence:
    found = find_sequences(folder)
    if len(found) != 1:
        raise InputError(f"{folder} holds {len(found)} sequences; give one")
    return found[0]


def plan(cast: list[Sequence]) -> list[tuple[Sequence, Sequence, bool]]:
    """Return all crossings as (sequence, sequence of the drawn object, whether that passes in front).

    About half of the drawn objects pass in front.
    """
    return [
        (base, other, row < column or (row == column and row % 2 == 0))
        for row, base in enumerate(cast)
        for column, other in enumerate(cast)
    ]


class Cutout(NamedTuple):
    """An object cut out of one image: pixels ``bgr`` [H, W, 3] of its box, and opacity ``alpha`` [H, W]."""

    bgr: Pixels
    alpha: NDArray[np.float32]


def cutouts(sequence: Sequence) -> list[Cutout]:
    """Cut the object out of the first `MAX_FRAMES` images; images that do not show it are left out."""
    mask, found = _mask_of(sequence), []
    for frame in islice(sequence.frames(), MAX_FRAMES):
        solid = mask(frame.index)
        if solid.any():
            x, y, w, h = map(int, mask_box(solid))
            soft = cv2.GaussianBlur(solid.astype(np.float32), (0, 0), EDGE_BLUR)
            part = np.s_[y : y + h, x : x + w]
            found.append(Cutout(frame.bgr[part].copy(), np.asarray(soft * solid, np.float32)[part]))
    return found


class Passer:
    """Draws the object of ``other`` into the images of ``base``, on a path through the object of ``base``."""

    def __init__(self, base: Sequence, other: Sequence, is_in_front: bool) -> None:
        self._base, self._is_in_front = base, is_in_front
        self._lag, self._step = (LAG, -1) if base is other else (0, 1)  # a twin is late, and mirrored (-1)
        self._parts = cutouts(other)
        shapes = np.array([[0, 0, *one.alpha.shape[::-1]] for one in self._parts], np.float64)
        self._sizes = np.hypot(*_smoothed(shapes)[1].T)
        self._places, self._sides = _smoothed(base.boxes[:MAX_FRAMES])
        width, height = next(base.frames()).size

        def shown(angle: int) -> float:
            """Estimate the share of the passing object that is in the image, at the worse end of its path."""
            ends = [0, len(self._places) - 1]
            centres, sides = np.array([self._centre(index, angle) for index in ends]), self._sides[ends]
            low, high = np.maximum(centres - sides / 2, 0.0), np.minimum(centres + sides / 2, [width, height])
            return float((np.maximum(high - low, 0.0) / sides).prod(axis=1).min())

        self._angle = next((one for one in ANGLES if shown(one) > ENOUGH_SHOWN), max(ANGLES, key=shown))

    def frames(self) -> Iterator[tuple[VideoFrame, list[Mask], list[Mask]]]:
        """Yield each image, a visible mask [H, W] of each object, and a mask of each whole object."""
        mask = _mask_of(self._base)
        for frame in islice(self._base.frames(), MAX_FRAMES):
            bgr, alpha = self._drawn(frame.index, self._angle, frame.size)
            own, whole = mask(frame.index), alpha > 0.5
            if not self._is_in_front:
                alpha = alpha * ~own
            share = alpha[..., None]
            image = np.asarray(frame.bgr * (1 - share) + bgr * share, np.uint8)
            passing = alpha > 0.5
            yield replace(frame, bgr=image), [own & ~passing, passing], [own, whole]

    def _centre(self, index: int, angle: int) -> NDArray[np.float64]:
        """Return the centre (x, y) of the passing object in image ``index``, px."""
        along = np.array([math.cos(math.radians(angle)), math.sin(math.radians(angle))])
        way = 2.0 * index / (len(self._places) - 1) - 1.0
        reach = APART * float(self._sides[index] @ np.abs(along))
        return np.asarray(self._places[index] + way * reach * along)

    def _drawn(self, index: int, angle: int, size: tuple[int, int]) -> tuple[Pixels, NDArray[np.float32]]:
        """Return an image with the passing object alone, uint8 [H, W, 3], and its opacity [H, W], 0..1."""
        last = max(1, len(self._parts) - 1)  # after this part the parts are used in reverse order
        source = min(last - abs(last - (index + self._lag) % (2 * last)), len(self._parts) - 1)
        bgr, alpha = self._parts[source]
        x, y = self._centre(index, angle)
        zoom = math.hypot(*self._sides[index]) / self._sizes[source]
        height, width = alpha.shape
        matrix = np.array([[zoom, 0, x - zoom * width / 2], [0, zoom, y - zoom * height / 2]])
        layers = [
            cv2.warpAffine(np.ascontiguousarray(one[:, :: self._step]), matrix, size) for one in (bgr, alpha)
        ]
        return np.asarray(layers[0], np.uint8), np.asarray(layers[1], np.float32)


def crossing_of(base: Sequence, other: Sequence, is_in_front: bool) -> Crossing:
    """Return the crossing with the object of ``other`` drawn into ``base``.

    Raises InputError if a sequence has no masks.
    """
    passer = Passer(base, other, is_in_front)
    boxes = np.full((2, min(MAX_FRAMES, len(base)), 4), np.nan)
    for frame, seen, whole in passer.frames():
        for target in range(2):
            if seen[target].sum() >= max(1.0, MIN_SHOWN * whole[target].sum()):
                boxes[target, frame.index] = mask_box(seen[target])
    what = "twin" if base is other else other.name
    name = f"{base.name} {what} {'in front' if is_in_front else 'behind'}"
    kind = "twin" if base is other else "drawn"
    return Crossing(kind, _group(name, boxes, lambda: (frame for frame, *_ in passer.frames())))


def _mask_of(sequence: Sequence) -> Callable[[int], Mask]:
    if sequence.mask is None:
        raise InputError(f"{sequence.name} has no masks, so its object can't be cut out")
    return sequence.mask


def _smoothed(boxes: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return centres and sides, [N, 2] each, of boxes [N, 4], averaged over time.

    A missing box (NaN) is replaced by the one before.
    """
    known = boxes.copy()
    for index in range(1, len(known)):
        if not np.isfinite(known[index]).all():
            known[index] = known[index - 1]
    padded = np.pad(known, ((SMOOTHED // 2, SMOOTHED // 2), (0, 0)), mode="edge")
    mean = np.stack(
        [np.convolve(column, np.full(SMOOTHED, 1 / SMOOTHED), "valid") for column in padded.T], axis=1
    )
    return mean[:, :2] + mean[:, 2:] / 2, mean[:, 2:]


def _group(name: str, boxes: NDArray[np.float64], source: Callable[[], Iterator[VideoFrame]]) -> Group:
    return [Sequence(f"{name}#{number}", rows, source) for number, rows in enumerate(boxes, start=1)]
