"""Fit two shares to the files of `record` and report the overlap that they give on scenes left out.

An edge of the box is moved outwards from the mask's edge by two amounts
(`efftam_ros.core.policies.drawn_box`). The first is a share of the way to the level of the logits that fits
the drawn box. The second is a share of the drawn box's offset from the prompted mask. For the fit the drawn
box is moved a little at random, because nobody draws exactly. Each scene of the fitted folders is reported
with shares that were fitted without it. The folders after --report are reported with shares fitted to all
scenes. Images whose mask misses the target (overlap below 0.2) are left out.

Columns: overlap with the truth, and mean error of an edge in target sizes, each for the mask's box, the
tracker's box and the placed box. gain, lose: numbers of targets whose placed box has an overlap that is more
than 0.01 larger or smaller than the tracker's. inside: share of edges with an error below 1.96 times the
expected standard deviation, which is a constant plus a factor of the distance between the edges at the two
outer levels, both fitted in the same way.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box, iou
from efftam_ros.core.policies.constants import LEVELS
from efftam_ros.core.policies.drawn_box import OUTWARD, EdgeCues, Edges, sides
from efftam_ros.tools.common.terminal import print_table
from efftam_workshop.model.common.layers import boxes_at_levels

OUT = Path("runs/box_shares.json")
FOUND = 0.2  # the mask misses the target if its IoU with the truth is smaller
SMALL_PX = 32.0
DRAWN_NOISE = 0.025  # standard deviation of a drawn box's edge, as a share of its sides
DRAWS = 4  # random draws of that noise per target
ROBUST = 0.05  # errors above this share of the mask's side count less
FOLDS = 8
INSIDE = 1.96  # 95 % of normal errors are smaller than this many standard deviations
NORMAL = (np.pi / 2) ** 0.5  # a normal error's standard deviation divided by its mean magnitude
SCENE = re.compile(r"(#\d+)?$|_\d+(#\d+)?$|(?<=\d)_.*|-\d+$")


@dataclass(frozen=True)
class Target:
    """The edges of one target in M followed images, px of the image.

    ``scene``: targets of one scene are left out together. ``mask``, ``published``, ``truth``: boxes [M, 4].
    ``level``, ``prompt``: the two cues of `EdgeCues`, [M, 4], as shares of the mask's width or height.
    ``soft``: distance between an edge at the lowest and the same edge at the highest of `LEVELS`, [M, 4].
    ``limit``: [2], width and height of the image.
    """

    name: str
    scene: str
    mask: Edges
    published: Edges
    truth: Edges
    level: Edges
    prompt: Edges
    soft: Edges
    limit: Edges

    def placed(self, shares: NDArray[np.float64]) -> Edges:
        outward = (shares[0] * self.level + shares[1] * self.prompt) * sides(self.mask)
        return np.clip(self.mask + outward * OUTWARD, 0.0, np.tile(self.limit, 2))


def read(path: Path, noise: NDArray[np.float64] | None = None) -> Target | None:
    """Read one target's file; None if no image of it can be used.

    ``noise``: [4], shifts of the drawn box's edges as shares of its sides.
    """
    with np.load(path) as arrays:
        z = dict(arrays)
    boxes = boxes_of_profiles(z["profiles"])
    origin, scale = (np.tile(part, 2)[:, None, None, :] for part in (z["view"][:, :2], z["view"][:, 2:]))
    boxes = boxes / scale + origin
    truth = np.concatenate([z["truth"][:, :2], z["truth"][:, :2] + z["truth"][:, 2:]], axis=1)
    published = np.concatenate([z["published"][:, :2], z["published"][:, :2] + z["published"][:, 2:]], axis=1)
    limit = z["image_size"].astype(np.float64)
    drawn = truth[0] if noise is None else truth[0] + noise * sides(truth[0])
    cues = EdgeCues(np.clip(drawn, 0.0, np.tile(limit, 2)), boxes[0, 0, 1])
    rows: list[tuple[Edges, Edges, Edges, Edges, Edges, Edges]] = []
    for i in range(1, len(truth)):
        found = boxes[i, z["row"][i]]
        if z["row"][i] < 0 or not np.isfinite(found).all():
            continue
        cues.compare(found)
        if overlap(found[1], truth[i]) >= FOUND:
            tracker = published[i] if np.isfinite(published[i]).all() else found[1]
            between = (found[0] - found[-1]) * OUTWARD
            rows.append((found[1], tracker, truth[i], cues.way(found, sides(found[1])), cues.offset, between))
    if not rows:
        return None
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    mask, shown, wanted, level, prompt, soft = columns
    return Target(path.stem, SCENE.sub("", path.stem), mask, shown, wanted, level, prompt, soft, limit)


def boxes_of_profiles(profiles: NDArray[np.floating]) -> Edges:
    """Compute boxes [N, masks, levels, 4], network px, from the maximum logits of columns and rows.

    ``profiles``: [N, masks, 2, L]. The boxes of an empty mask are NaN.
    """
    count, masks, _, side = profiles.shape
    columns, rows = torch.from_numpy(profiles.astype(np.float32).reshape(-1, 2, side)).unbind(1)
    boxes = boxes_at_levels(columns, rows)
    boxes[columns.amax(dim=1) <= 0] = np.nan
    return boxes.numpy().astype(np.float64).reshape(count, masks, len(LEVELS), 4)


def overlap(one: Edges, other: Edges) -> float:
    return iou(Box.from_edges(*one), Box.from_edges(*other))


class Shares(NamedTuple):
    """The fitted numbers.

    ``moved``: [2], shares of the level's and of the prompt's cue. ``deviation``: [2], an edge's standard
    deviation: a constant as a share of the mask's width or height, and a factor of `Target.soft`.
    """

    moved: NDArray[np.float64]
    deviation: NDArray[np.float64]


def solve(targets: Iterable[Target]) -> Shares:
    """Fit the shares to ``targets``.

    A scene with n targets has a weight of the square root of n. Edges with large errors have less weight.
    """
    targets = list(targets)
    of_scene = Counter(one.scene for one in targets)
    cues, wanted, soft, equal = [], [], [], []
    for one in targets:
        size = sides(one.mask)
        cues.append(np.stack([one.level, one.prompt], -1).reshape(-1, 2))
        wanted.append(np.clip((one.truth - one.mask) * OUTWARD / size, -1.0, 2.0).ravel())
        soft.append((one.soft / size).ravel())
        count = len(wanted[-1])
        equal.append(np.full(count, 1.0 / (count * of_scene[one.scene] ** 0.5)))
    x, y, w = np.concatenate(cues), np.concatenate(wanted), np.concatenate(equal)
    moved = _robust(x, y, w)
    spread = np.stack([np.ones_like(y), np.concatenate(soft)], -1)
    deviation = NORMAL * _robust(spread, np.abs(y - x @ moved), w)
    return Shares(np.clip(moved, 0.0, 1.0), np.maximum(deviation, 0.0))


def _robust(x: Edges, y: Edges, equal: Edges) -> NDArray[np.float64]:
    """Solve weighted least squares with Huber's loss; ``equal``: weights [n] of the rows."""
    weight, found = equal, np.zeros(x.shape[1])
    for _ in range(10):
        root = np.sqrt(weight)
        found = np.linalg.lstsq(x * root[:, None], y * root, rcond=None)[0]
        weight = equal / np.maximum(1.0, np.abs(y - x @ found) / ROBUST)
    return found


class Score(NamedTuple):
    """Means over the images of one target.

    ``px``: the target's median size. ``overlaps`` and ``errors`` (in target sizes): of the mask's box, the
    tracker's box and the placed box. ``inside``: share of edge errors within the expected 95 % interval.
    """

    px: float
    overlaps: tuple[float, float, float]
    errors: tuple[float, float, float]
    inside: float


def score(target: Target, shares: Shares) -> Score:
    truth, size = target.truth, sides(target.mask)
    side = np.sqrt(np.prod(truth[:, 2:] - truth[:, :2], axis=1))
    boxes = target.mask, target.published, target.placed(shares.moved)
    mask, tracker, placed = (float(np.mean([*map(overlap, box, truth)])) for box in boxes)
    of_mask, of_tracker, of_placed = (
        float(np.mean(np.abs(box - truth).mean(axis=1) / side)) for box in boxes
    )
    expected = shares.deviation[0] * size + shares.deviation[1] * target.soft
    inside = float(np.mean(np.abs(boxes[2] - truth) <= INSIDE * expected))
    errors = (of_mask, of_tracker, of_placed)
    return Score(float(np.median(side)), (mask, tracker, placed), errors, inside)


def rows(label: str, scores: Sequence[Score]) -> Iterator[list[Any]]:
    """Yield rows of the table: one for all targets of a folder and one for its small targets."""
    for kind, some in (("", scores), (", small", [one for one in scores if one.px < SMALL_PX])):
        if some:
            gains = np.array([one.overlaps[2] - one.overlaps[1] for one in some])
            means = np.mean([(*one.overlaps, *one.errors) for one in some], axis=0).tolist()
            counts = int((gains > 0.01).sum()), int((gains < -0.01).sum())
            yield [f"{label}{kind}", len(some), *means, *counts, float(np.mean([one.inside for one in some]))]


def targets_in(folder: Path, noises: Sequence[NDArray[np.float64] | None] = (None,)) -> list[Target]:
    found = (read(path, noise) for path in sorted(folder.glob("*.npz")) for noise in noises)
    return [one for one in found if one is not None]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help="folders that record wrote")
    parser.add_argument(
        "--report", type=Path, nargs="+", default=[], metavar="FOLDER", help="more folders, not fitted to"
    )
    parser.add_argument("--out", type=Path, default=OUT, metavar="FILE", help="default %(default)s")


def run(args: argparse.Namespace) -> int:
    noises = list(np.random.default_rng(0).normal(0.0, DRAWN_NOISE, (DRAWS, 4)))
    noisy = [one for folder in args.folders for one in targets_in(folder, noises)]
    if not noisy:
        raise InputError(f"nothing was followed in {', '.join(map(str, args.folders))}; run record first")
    scenes = sorted({one.scene for one in noisy})
    fold = {scene: number % FOLDS for number, scene in enumerate(scenes)}
    # A single scene leaves no targets to fit to if it is left out. Then shares of all targets are used.
    parts = [[one for one in noisy if fold[one.scene] != left_out] for left_out in range(FOLDS)]
    shares = solve(noisy)
    without = [solve(part) if part else shares for part in parts]
    table: list[list[Any]] = []
    for folder in args.folders:
        table += rows(folder.name, [score(one, without[fold[one.scene]]) for one in targets_in(folder)])
    for folder in args.report:
        table += rows(f"{folder.name} (not fitted)", [score(one, shares) for one in targets_in(folder)])
    compared = ["mask", "tracker", "placed"]
    headers = ["set", "targets", *compared, *(f"edge, {name}" for name in compared), "gain", "lose", "inside"]
    print_table(headers, table)
    found = {name: [round(float(share), 3) for share in value] for name, value in shares._asdict().items()}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(found) + "\n", encoding="utf-8")
    spread = np.ptp([one.moved for one in without], axis=0)
    print(f"{args.out}: {found}; without a part of the scenes: up to {spread.max():.2f} apart")
    return 0
