"""Fit the probability that a measured box is right, and write it into the bundle.

Runs the default policy over sequences with ground truth (as `efftam eval` reads them) from their first true
box. A logistic model of likeness, presence and predicted IoU is fitted to the measured boxes: right, with an
overlap above 0.5, against wrong, with an overlap below 0.1 or of an absent target. The tracker then tells it
in every answer (`confidence`). The bundle notes the network's hash, the sequences and the date. Boxes of one
sequence resemble each other, so every figure is of sequences that the model was not fitted to (each fifth of
them by a model of the others). A model that tells less of these than the share of right boxes is refused.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from contextlib import closing
from dataclasses import asdict
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.contract import Pipeline
from efftam_ros.core.errors import InputError
from efftam_ros.core.identity import Calibration, presence_logit
from efftam_ros.images.video import VideoFrame
from efftam_ros.runtime.bundle import CALIBRATION, MANIFEST, Bundle, network_sha256
from efftam_ros.runtime.opening import open_pipeline
from efftam_ros.tools.common.options import add_quiet_argument, add_threads_argument
from efftam_ros.tools.common.outputs import Output, check_outputs, plotted, write_text
from efftam_ros.tools.common.terminal import Cell, print_table, progress_bar
from efftam_ros.version import __version__
from efftam_workshop.eval.command import Answer, OwnTracker, one_pass
from efftam_workshop.eval.metrics import FALSE_CLAIM_IOU, known_rows, overlaps
from efftam_workshop.eval.sequences import Sequence, find_sequences, folders_read

EVIDENCE = ("likeness", "presence", "predicted IoU")
SPLITS = ("even", "odd")
RIGHT_IOU = 0.5
LEAST_RIGHT, LEAST_WRONG, LEAST_SEQUENCES = 200, 30, 5
"""Measured boxes that a fit needs, and the sequences from which each kind must come."""
FOLDS = 5
RIDGE = 1.0  # on weights of standardised values: keeps those of separable footage finite
BINS = np.linspace(0.0, 1.0, 11)

Array = NDArray[np.float64]


class Boxes(NamedTuple):
    """Measured boxes: ``evidence`` float64 [n, 3], likeness, log-odds of presence and predicted IoU;
    ``right`` bool [n], the others are wrong; ``sequence`` int [n]."""

    evidence: Array
    right: NDArray[np.bool_]
    sequence: NDArray[np.intp]

    def of(self, chosen: NDArray[np.bool_]) -> Boxes:
        return Boxes(self.evidence[chosen], self.right[chosen], self.sequence[chosen])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="folder of the network")
    parser.add_argument(
        "folders", nargs="+", type=Path, metavar="SEQUENCE", help="sequence, data set or folder of sequences"
    )
    parser.add_argument(
        "--split",
        choices=SPLITS,
        help="only the sequences whose name's SHA-256 is even, or odd (default: all)",
    )
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="reliability curve")
    add_threads_argument(parser)
    add_quiet_argument(parser)


def run(args: argparse.Namespace) -> int:
    bundle = Bundle.load(args.bundle, calibrated=False)
    found = [sequence for folder in args.folders for sequence in find_sequences(folder)]
    sequences = [one for one in found if args.split in (None, split_of(one.name))]
    if not sequences:
        raise InputError(
            f"--split {args.split} leaves none of {len(found)} sequences; give more, or leave it out"
        )
    manifest = args.bundle / MANIFEST
    check_outputs(
        [Output("BUNDLE", manifest), Output("--plot", args.plot, "picture")],
        [inner for folder in args.folders for inner in folders_read(folder)],
    )
    with closing(open_pipeline(bundle, threads=args.threads)) as pipeline:
        boxes = measured_boxes(pipeline, sequences, args.quiet)
    check_enough(boxes)
    held_out, calibration = held_out_confidence(boxes), fit(boxes)
    report(boxes, held_out, calibration)
    if args.plot is not None:
        plot(args.plot, boxes, held_out)
    check_carries_over(boxes, held_out)
    text = json.loads(manifest.read_text(encoding="utf-8"))
    text[CALIBRATION] = {
        "network": network_sha256(text),
        **{name: round(value, 4) for name, value in asdict(calibration).items()},
        "right": int(boxes.right.sum()),
        "wrong": int((~boxes.right).sum()),
        "sequences": [sequence.name for sequence in sequences],
        "split": args.split or "all",
        "date": f"{datetime.now(timezone.utc):%Y-%m-%d}",
        "efftam_ros": __version__,
    }
    write_text(manifest, json.dumps(text, indent=2) + "\n")
    print(f"{manifest}: calibration written")
    return 0


def split_of(name: str) -> str:
    """The half of the sequences that this one belongs to."""
    return SPLITS[int(hashlib.sha256(name.encode()).hexdigest()[-1], 16) % 2]


def measured_boxes(pipeline: Pipeline, sequences: list[Sequence], quiet: bool) -> Boxes:
    """Track every sequence. Boxes that are neither right nor wrong are left out."""
    parts, tracker = [], OwnTracker(pipeline, TrackerConfig(), has_masks=False)
    with progress_bar(sum(map(len, sequences)), "calibrate", quiet=quiet) as bar:
        for number, sequence in enumerate(sequences):
            bar.set_description(f"calibrate: {sequence.name}")
            evidence = np.full((len(sequence), len(EVIDENCE)), np.nan)
            (run,) = one_pass(tracker, [sequence], 0, bar.update, partial(_note, evidence))
            overlap = overlaps(sequence.boxes, run.measured)
            right = overlap > RIGHT_IOU
            known = np.isfinite(evidence).all(axis=1) & known_rows(run.measured)
            known &= right | (overlap < FALSE_CLAIM_IOU)
            parts.append(Boxes(evidence, right, np.full(len(sequence), number)).of(known))
    return Boxes(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _note(evidence: Array, frame: VideoFrame, answer: Answer) -> None:
    """Write down what speaks for an answer, but for the first, which is given."""
    if (track := answer.track) is not None and frame.index > 0:
        evidence[frame.index] = track.likeness, presence_logit(track.presence), track.quality


def check_enough(boxes: Boxes) -> None:
    """Raises InputError, with what is missing, when a model of these boxes would mean nothing."""
    missing = []
    for kind, chosen, least in (("right", boxes.right, LEAST_RIGHT), ("wrong", ~boxes.right, LEAST_WRONG)):
        count, sources = int(chosen.sum()), len(np.unique(boxes.sequence[chosen]))
        if count < least or sources < LEAST_SEQUENCES:
            missing.append(
                f"{count} {kind} boxes of {sources} sequences; {least} of {LEAST_SEQUENCES} are needed"
            )
    if missing:
        raise InputError(
            f"too little footage: {', '.join(missing)}: add sequences in which the target disappears or"
            " passes others of its kind"
        )


def check_carries_over(boxes: Boxes, held_out: Array) -> None:
    """Raises InputError when the share of right boxes tells as much of other sequences as the model does."""
    share, sources = float(boxes.right.mean()), len(np.unique(boxes.sequence[~boxes.right]))
    error, least = float(np.mean((held_out - boxes.right) ** 2)), share * (1.0 - share)
    if error >= least:
        raise InputError(
            f"too little footage: of other sequences the model tells less (squared error {error:.4f}) than"
            f" the share of right boxes ({least:.4f}); add to the {sources} sequences with wrong boxes"
        )


def fit(boxes: Boxes) -> Calibration:
    """The logistic model of these boxes. No weight is below 0: evidence of one kind that speaks against a box
    the more there is of it is that of a few sequences, and left out."""
    middle, spread = boxes.evidence.mean(axis=0), np.maximum(boxes.evidence.std(axis=0), 1e-6)
    values = np.column_stack([(boxes.evidence - middle) / spread, np.ones(len(boxes.right))])
    while (weights := _weights(values, boxes.right))[:3].min() < -1e-9:
        values[:, weights[:3].argmin()] = 0.0
    scaled = weights[:3] / spread
    prior = float(np.log(boxes.right.sum() / (~boxes.right).sum()))
    likeness, presence, quality = scaled.tolist()
    offset = float(weights[3] - scaled @ middle) - prior
    return Calibration(likeness, presence, quality, offset, prior)


def _weights(values: Array, right: NDArray[np.bool_]) -> Array:
    """The likeliest weights of ``values`` [n, 4], the last column ones; by Newton's method, small ridge."""
    ridge, weights = RIDGE * np.diag([1.0, 1.0, 1.0, 0.0]), np.zeros(4)
    for _ in range(30):
        likely = 1.0 / (1.0 + np.exp(-np.clip(values @ weights, -30.0, 30.0)))
        slope = values.T @ (right - likely) - ridge @ weights
        bend = (values.T * (likely * (1.0 - likely) + 1e-9)) @ values + ridge
        weights += np.linalg.solve(bend, slope)
    return weights


def confidence(model: Calibration, evidence: Array) -> Array:
    """`Calibration.confidence` of each row of evidence, [n]."""
    weights = np.array([model.likeness, model.presence, model.quality])
    return np.asarray(
        1.0 / (1.0 + np.exp(-np.clip(evidence @ weights + model.offset + model.prior, -50, 50)))
    )


def held_out_confidence(boxes: Boxes) -> Array:
    """The confidence [n] in each box, by a model of the other folds' sequences.

    Sequences with wrong boxes are few: they are dealt out to the folds in turn, so that none lacks them.
    """
    names, place = np.unique(boxes.sequence, return_inverse=True)
    wrong = np.bincount(place, ~boxes.right, len(names))
    fold = np.empty(len(names), int)
    fold[np.argsort(-wrong, kind="stable")] = np.arange(len(names)) % FOLDS
    found = np.empty(len(boxes.right))
    for number in range(FOLDS):
        inside = fold[place] == number
        if inside.any():
            found[inside] = confidence(fit(boxes.of(~inside)), boxes.evidence[inside])
    return found


def area_under_curve(values: Array, right: NDArray[np.bool_]) -> float:
    """Probability that a right box has the larger value than a wrong one; ties count half."""
    wrong = np.sort(values[~right])
    below = np.searchsorted(wrong, values[right], "left") + np.searchsorted(wrong, values[right], "right")
    return float(below.mean() / 2 / len(wrong))


class Bin(NamedTuple):
    """The boxes with similar confidence: mean confidence, share of right ones, number."""

    confidence: float
    right: float
    boxes: int


def reliability(held_out: Array, right: NDArray[np.bool_]) -> list[Bin]:
    """Bins of confidence, each a tenth wide, without empty ones."""
    place = np.clip(np.digitize(held_out, BINS) - 1, 0, len(BINS) - 2)
    return [
        Bin(float(held_out[inside].mean()), float(right[inside].mean()), int(inside.sum()))
        for inside in (place == number for number in range(len(BINS) - 1))
        if inside.any()
    ]


def report(boxes: Boxes, held_out: Array, calibration: Calibration) -> None:
    bins = reliability(held_out, boxes.right)
    print_table(
        ["confidence", "share of right boxes", "boxes"], [list(row) for row in bins], title="held out"
    )
    areas = [("confidence, held out", held_out), *zip(EVIDENCE, boxes.evidence.T, strict=True)]
    rows: list[list[Cell]] = [[name, area_under_curve(values, boxes.right)] for name, values in areas]
    print_table(["right against wrong", "area under the curve"], rows)
    print_table(["weight", "value"], [[name, value] for name, value in asdict(calibration).items()])


def plot(path: Path, boxes: Boxes, held_out: Array) -> None:
    bins = reliability(held_out, boxes.right)
    with plotted(path) as axes:
        axes.plot([0, 1], [0, 1], color="0.7")
        axes.plot([one.confidence for one in bins], [one.right for one in bins], marker="o")
        for one in bins:
            axes.annotate(f"{one.boxes}", (one.confidence, one.right), (4, -12), textcoords="offset points")
        sequences = len(np.unique(boxes.sequence))
        axes.set(
            xlabel="confidence",
            ylabel="share of right boxes",
            xlim=(0, 1.02),
            ylim=(0, 1.02),
            title=f"{len(held_out)} measured boxes of {sequences} sequences, held out",
        )
