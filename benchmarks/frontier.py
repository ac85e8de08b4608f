"""Recall and false claims of trackers, for many limits ("dials") on the score.

A tracker claims a box in an image only if its score is at least the limit. Recall: share of the images with
the target in view in which the claimed box is right (overlap at least 0.5; at least 0.3 for a target below
16 px). False claims: share of all images with a claimed box that misses the target (overlap below 0.1), or
with a claimed box while the target is absent. The first image is the selection and is not counted.

The score of this package's tracker is the confidence of a measured box; that of a peer is the highest score
of its map.

Results of runs are stored in --cache, so that the same command continues after an interruption.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.peers.registry import open_peer
from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.contract import Pipeline
from efftam_ros.core.geometry import Box, iou
from efftam_ros.core.types import Frame, Image, Prompt
from efftam_ros.runtime.backends import PipelineConfig
from efftam_ros.runtime.opening import open_pipeline, open_targets
from efftam_ros.tools.common.terminal import Cell, print_table, progress_bar
from efftam_workshop.eval.sequences import Sequence as Footage
from efftam_workshop.eval.sequences import find_sequences

RIGHT_IOU, SMALL_RIGHT_IOU, SMALL_PX, WRONG_IOU = 0.5, 0.3, 16.0, 0.1
PEERS = ("fear_xs", "nanotrack_v3")
SCORES = 12  # number of points of a curve
NAMES = {"ours": "this package", "fear_xs": "FEAR-XS", "nanotrack_v3": "NanoTrack V3"}
COLOURS = {"ours": "#0b6", "fear_xs": "#c40", "nanotrack_v3": "#06c"}
WIDTH, HEIGHT, MARGIN = 520, 360, 56


class Claim(NamedTuple):
    """A tracker's answer for one image.

    ``score``: the tracker's score of its box; 0 without a box. ``overlap``: IoU of the box with the target.
    ``size``: size of the target, px; 0 if it is absent.
    """

    score: float
    overlap: float
    size: float


class Point(NamedTuple):
    """A point of a curve: shares of false claims and of right claims at the limit ``dial`` on the score."""

    false: float
    recall: float
    dial: float


Follow = Callable[[Footage], Iterator[tuple[Box | None, float]]]


def ours(pipeline: Pipeline) -> Follow:
    """Return a function that follows a sequence by this package's tracker.

    It yields (box, score) for each image; the box is None unless it was measured.
    """

    def follow(footage: Footage) -> Iterator[tuple[Box | None, float]]:
        targets = open_targets(pipeline, TrackerConfig())
        for number, frame in enumerate(footage.frames()):
            prompts = {} if number else {0: Prompt(box=_box(footage, 0))}
            image = Image.from_array(np.ascontiguousarray(frame.bgr))
            ((_, track, *_),) = targets.step(Frame(image, frame.stamp_ns), prompts)
            targets.remember()
            is_known = math.isfinite(track.confidence)  # not in the image of the selection
            yield track.box if track.measured else None, track.confidence if is_known else track.presence

    return follow


def peer(name: str, models: Path) -> Follow:
    """Return a function that follows a sequence by the peer tracker ``name``.

    It yields (box, score) for each image. ``models``: folder of the peer's model files.
    """
    opened = open_peer(name, models, 1)

    def follow(footage: Footage) -> Iterator[tuple[Box | None, float]]:
        for number, frame in enumerate(footage.frames()):
            if number == 0:
                opened.start(frame.bgr, _box(footage, 0))
                yield _box(footage, 0), 1.0
            else:
                box = opened.update(frame.bgr)
                yield box, float(getattr(opened, "highest", getattr(opened, "score", 1.0)))

    return follow


def claims_of(footage: Footage, follow: Follow, most: int) -> list[Claim]:
    """Return the claims for the images after the first, at most ``most`` of them."""
    found = []
    for number, (box, score) in enumerate(follow(footage)):
        if number:
            truth = _box(footage, number)
            overlap = 0.0 if box is None or truth.is_empty else iou(box, truth)
            found.append(
                Claim(score if box is not None else 0.0, overlap, 0.0 if truth.is_empty else truth.size)
            )
        if number == most:
            break
    return found


def point(claims: Sequence[Sequence[Claim]], least: float, dial: float) -> Point:
    """Return the mean shares over all sequences. ``least``: limit on the score from which a box is claimed.

    ``dial``: the limit to store in the point.
    """
    false, recall = [], []
    for one in claims:
        claimed = [claim for claim in one if claim.score >= least and claim.score > 0]
        seen = [claim for claim in one if claim.size]
        right = [
            c
            for c in claimed
            if c.size and c.overlap >= (SMALL_RIGHT_IOU if c.size < SMALL_PX else RIGHT_IOU)
        ]
        false.append(sum(claim.overlap < WRONG_IOU for claim in claimed) / max(len(one), 1))
        if seen:
            recall.append(len(right) / len(seen))
    return Point(float(np.mean(false)), float(np.mean(recall)), dial)


def curve_of(claims: Sequence[Sequence[Claim]]) -> list[Point]:
    """Return the points for about `SCORES` limits, which are quantiles of all scores."""
    scores = sorted(claim.score for one in claims for claim in one)
    limits = sorted({scores[int(at)] for at in np.linspace(0, len(scores) - 1, SCORES)})
    return [point(claims, limit, limit) for limit in limits]


def _box(footage: Footage, number: int) -> Box:
    return Box(*map(float, footage.boxes[number]))


def _step(most: float) -> float:
    """Return the distance between two labels of an axis from 0 to ``most``: 1, 2 or 5 times a power of 10.

    The axis then has five to eleven labels.
    """
    power = 10.0 ** math.floor(math.log10(most / 5))
    return power * max(factor for factor in (1, 2, 5) if factor * power <= most / 4)


def drawn(curves: dict[str, list[Point]]) -> str:
    """Return the curves as an SVG picture: false claims on the x axis, recall on the y axis."""
    most = max(0.05, *(one.false for curve in curves.values() for one in curve))

    def place(one: Point) -> tuple[float, float]:
        x = MARGIN + (WIDTH - 2 * MARGIN) * one.false / most
        return x, HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * one.recall

    def text(x: float, y: float, words: str, anchor: str, colour: str = "black") -> str:
        style = f'font-size="12" text-anchor="{anchor}" fill="{colour}"'
        return f'<text x="{x:.0f}" y="{y:.0f}" {style}>{words}</text>'

    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
    left, right, bottom = MARGIN, WIDTH - MARGIN, HEIGHT - MARGIN
    parts = [
        f'{head} font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<path d="M{left} {MARGIN} V{bottom} H{right}" stroke="black" fill="none"/>',
        text(WIDTH / 2, HEIGHT - 14, "false claims", "middle"),
        text(left, MARGIN - 14, "recall", "middle"),
    ]
    parts += [
        text(left - 8, bottom - (bottom - MARGIN) * recall + 4, f"{recall:g}", "end")
        for recall in (0.0, 0.25, 0.5, 0.75, 1.0)
    ]
    for false in np.arange(0.0, most * (1 + 1e-9), _step(most)):
        x, _ = place(Point(float(false), 0.0, 0.0))
        parts.append(f'<path d="M{x:.0f} {bottom} v5" stroke="black"/>')
        parts.append(text(x, bottom + 18, f"{false:g}", "middle"))
    for number, (name, curve) in enumerate(curves.items()):
        colour, places = COLOURS.get(name, "black"), [place(one) for one in sorted(curve)]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{line}" stroke="{colour}" fill="none"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        # The names stand in the lower right corner: there no curve passes, as a false claim costs no recall.
        parts.append(
            text(right, bottom - 12 - 16 * (len(curves) - 1 - number), NAMES.get(name, name), "end", colour)
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="folders of sequences")
    parser.add_argument(
        "--peer-models", type=Path, metavar="DIR", help="folder of the peers' ONNX files (default: no peers)"
    )
    parser.add_argument("--cache", type=Path, required=True, metavar="DIR", help="folder for results of runs")
    parser.add_argument(
        "--most", type=int, default=300, metavar="N", help="most images of each sequence (300)"
    )
    parser.add_argument("--picture", type=Path, metavar="FILE", help="write the curves as SVG")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run(args: argparse.Namespace) -> int:
    footage = [one for folder in args.folders for one in find_sequences(folder)]
    args.cache.mkdir(parents=True, exist_ok=True)
    pipeline = open_pipeline(PipelineConfig(threads=1, max_targets=1))
    runs: dict[str, Callable[[], Follow]] = {"ours": partial(ours, pipeline)}
    for name in PEERS if args.peer_models is not None else ():
        runs[name] = partial(peer, name, args.peer_models)
    claims: dict[str, list[list[Claim]]] = {name: [] for name in runs}
    try:
        with progress_bar(len(footage) * len(runs), "runs", unit="run", quiet=args.quiet) as bar:
            for one in footage:
                for name, opened in runs.items():
                    claims[name].append(_cached(args.cache, one, name, args.most, opened))
                    bar.update()
    finally:
        pipeline.close()
    curves = {name: curve_of(of) for name, of in claims.items()}
    rows: list[list[Cell]] = [[name, *one[::-1]] for name, curve in curves.items() for one in curve]
    print_table(("tracker", "dial", "recall", "false claims"), rows, title=f"{len(footage)} sequences")
    if args.picture is not None:
        args.picture.write_text(drawn(curves), encoding="utf-8")
    return 0


def _cached(cache: Path, footage: Footage, name: str, most: int, opened: Callable[[], Follow]) -> list[Claim]:
    path = cache / f"{footage.name}.{name}.{most}.json"
    if not path.exists():
        path.write_text(json.dumps(claims_of(footage, opened(), most)) + "\n", encoding="utf-8")
    return [Claim(*one) for one in json.loads(path.read_text(encoding="utf-8"))]
