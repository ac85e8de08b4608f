"""Find the box head's two shares from what `record` wrote, each scene left out in turn, and report them.

A share says how far an edge of the published box is moved outwards of the mask's edge: of the way to the
level of the logits that fits the drawn box, and of the drawn box's offset from the prompted mask
(`efftam_ros.core.policies.box_head`). The drawn box is moved a little for that, as nobody draws exactly.
What is reported of a scene comes from shares that were found without it; of the sets after --report, from
all of the others. Images in which the mask misses the target (overlap below 0.2) count in neither.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box, View, iou
from efftam_ros.core.policies.box_head import PlacedBox
from efftam_ros.core.types import BoxHead, Candidates
from efftam_ros.tools.common.terminal import print_table
from efftam_workshop.model.common.layers import STRIDE, boxes_of_maxima

HEAD = Path("runs/box_head.json")
FOUND = 0.2  # overlap of mask and truth from which the target is not missed
SMALL_PX = 32.0
DRAWN_NOISE = 0.025  # standard deviation of an edge of a drawn box, in its sizes
DRAWS = 4  # of that noise
ROBUST = 0.05  # sizes: an edge that is further off counts less
FOLDS = 8
SCENE = re.compile(r"(#\d+)?$|_\d+(#\d+)?$|(?<=\d)_.*|-\d+$")


@dataclass(frozen=True)
class Edges:
    """What is known of one target's edges in M followed images, px of the image.

    ``mask``, ``published``, ``truth``: boxes [M, 4] (left, top, right, bottom); ``level``, ``prompt``: the
    two cues of `PlacedBox.cues`, [M, 4] outwards; ``limit``: [2] width and height of the image.
    """

    name: str
    group: str
    mask: NDArray[np.float64]
    published: NDArray[np.float64]
    truth: NDArray[np.float64]
    level: NDArray[np.float64]
    prompt: NDArray[np.float64]
    limit: NDArray[np.float64]

    @property
    def size(self) -> NDArray[np.float64]:
        """Width, height, width, height of the masks, [M, 4]."""
        return np.tile(np.maximum(self.mask[:, 2:] - self.mask[:, :2], 1.0), 2)

    def placed(self, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        outward = np.array([-1.0, -1.0, 1.0, 1.0]) * (shares[0] * self.level + shares[1] * self.prompt)
        return np.clip(self.mask + outward, 0.0, np.tile(self.limit, 2))


def read(path: Path, noise: NDArray[np.float64] | None = None) -> Edges | None:
    """One target's edges; None where there is nothing to compare. ``noise``: [4], how far the edges of the
    drawn box are moved, in its sizes."""
    with np.load(path) as arrays:
        z = dict(arrays)
    boxes, levels = _boxes(z["profiles"].astype(np.float32))
    first = Box(*z["truth"][0])
    edges = np.array(first.edges())
    if noise is not None:
        edges = edges + noise * np.array([first.width, first.height] * 2)
    drawn = Box.from_edges(*edges).clipped(*z["image_size"])
    found = [_candidates(z, boxes, levels, i) for i in range(len(z["row"]))]
    prompted = found[0].box(0)
    placed = PlacedBox(BoxHead(0.0, 0.0), drawn, None if prompted.is_empty else prompted)
    rows: list[tuple[Any, ...]] = []
    for i in range(1, len(found)):
        index = int(z["row"][i]) - 1
        if index < 0:
            continue
        candidates = found[i]
        placed.add(candidates, index)
        mask, truth = candidates.box(index), Box(*z["truth"][i])
        if iou(mask, truth) >= FOUND:
            level, prompt = placed.cues(candidates, index, mask)
            published = Box(*z["published"][i])
            shown = published if published.is_finite else mask
            rows.append((mask.edges(), shown.edges(), truth.edges(), level, prompt))
    if not rows:
        return None
    columns = [np.array(column, np.float64) for column in zip(*rows, strict=True)]
    return Edges(path.stem, SCENE.sub("", path.stem), *columns, limit=z["image_size"].astype(np.float64))


def _boxes(profiles: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Boxes [N, 4, 4] and those at the other levels [N, 4, 2, 4], network px, of the maxima [N, 4, 2, L]."""
    count, masks, _, side = profiles.shape
    flat = torch.from_numpy(profiles.reshape(count * masks, 2, side))
    levels = boxes_of_maxima(flat[:, 0], flat[:, 1]).numpy().reshape(count, masks, 2, 4)
    return _zero_boxes(profiles), levels


def _zero_boxes(profiles: NDArray[np.float32]) -> NDArray[np.float32]:
    """The boxes where the maxima cross zero, [N, 4, 4] network px; zeros of empty masks."""
    count, masks, _, side = profiles.shape
    # An outer product of both maxima would be a picture with the same maxima; the minimum is one.
    from efftam_ros.runtime.preprocess import boxes_and_areas

    pictures = np.minimum(profiles[:, :, 1, :, None], profiles[:, :, 0, None, :])
    boxes, _ = boxes_and_areas(pictures.reshape(count * masks, side, side))
    return boxes.reshape(count, masks, 4)


def _candidates(
    z: dict[str, Any], boxes: NDArray[np.float32], levels: NDArray[np.float32], i: int
) -> Candidates:
    x, y, scale_x, scale_y = z["view"][i].tolist()
    side = int(STRIDE) * z["profiles"].shape[-1]
    some = slice(0, 1) if i == 0 else slice(1, 4)
    return Candidates.in_view(
        View(x, y, scale_x, scale_y, side),
        boxes[i, some],
        z["areas"][i, some],
        z["ious"][i, some],
        float(z["presence"][i]),
        levels[i, some],
    )


def solve(targets: Iterable[Edges]) -> NDArray[np.float64]:
    """The shares [2] of the two cues, each scene with equal weight, edges that are far off with less."""
    targets = list(targets)
    groups: dict[str, int] = {}
    for one in targets:
        groups[one.group] = groups.get(one.group, 0) + 1
    rows, wanted, weights = [], [], []
    for one in targets:
        size, outward = one.size, np.array([-1.0, -1.0, 1.0, 1.0])
        rows.append(np.stack([one.level / size, one.prompt / size], -1).reshape(-1, 2))
        wanted.append(np.clip((one.truth - one.mask) * outward / size, -1.0, 2.0).ravel())
        count = len(wanted[-1])
        weights.append(np.full(count, 1.0 / (count * np.sqrt(groups[one.group]))))
    x, y, equal = np.concatenate(rows), np.concatenate(wanted), np.concatenate(weights)
    weight, shares = equal.copy(), np.zeros(2)
    for _ in range(10):  # iteratively reweighted least squares: Huber's loss
        shares = np.linalg.lstsq(x * np.sqrt(weight)[:, None], y * np.sqrt(weight), rcond=None)[0]
        weight = equal / np.maximum(1.0, np.abs(y - x @ shares) / ROBUST)
    return np.clip(shares, 0.0, 1.0)


def fold_of(group: str, groups: list[str]) -> int:
    return sorted(groups).index(group) % FOLDS


@dataclass(frozen=True)
class Score:
    """Means of one target: overlap and error of an edge, in sizes, of the mask's box, of the tracker's that
    was recorded and of the head's."""

    name: str
    px: float
    overlaps: tuple[float, float, float]
    errors: tuple[float, float, float]


def score(target: Edges, shares: NDArray[np.float64]) -> Score:
    truth = target.truth
    size = np.sqrt(np.prod(truth[:, 2:] - truth[:, :2], axis=1))
    boxes = target.mask, target.published, target.placed(shares)
    overlaps = [
        np.mean([iou(Box.from_edges(*a), Box.from_edges(*b)) for a, b in zip(box, truth, strict=True)])
        for box in boxes
    ]
    errors = [np.mean(np.abs(box - truth).mean(axis=1) / size) for box in boxes]
    return Score(target.name, float(np.median(size)), tuple(overlaps), tuple(errors))  # type: ignore[arg-type]


def _rows(label: str, scores: list[Score]) -> Iterator[list[Any]]:
    kinds = {"": scores, ", small": [one for one in scores if one.px < SMALL_PX]}
    for kind, some in kinds.items():
        if some:
            gains = np.array([one.overlaps[2] - one.overlaps[1] for one in some])
            columns = np.mean([(*one.overlaps, *one.errors) for one in some], axis=0)
            yield [
                f"{label}{kind}",
                len(some),
                *columns,
                int((gains > 0.01).sum()),
                int((gains < -0.01).sum()),
            ]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help="what record wrote")
    parser.add_argument(
        "--report", type=Path, nargs="+", default=[], metavar="FOLDER", help="more of it, not to fit on"
    )
    parser.add_argument("--out", type=Path, default=HEAD, metavar="FILE", help="default %(default)s")


def run(args: argparse.Namespace) -> int:
    exact = {folder: _all(folder) for folder in (*args.folders, *args.report)}
    rng = np.random.default_rng(0)
    noisy = [
        one
        for folder in args.folders
        for path in sorted(folder.glob("*.npz"))
        for noise in rng.normal(0.0, DRAWN_NOISE, (DRAWS, 4))
        if (one := read(path, noise)) is not None
    ]
    if not noisy:
        raise InputError(f"{', '.join(map(str, args.folders))}: nothing that was followed; run record first")
    groups = sorted({one.group for one in noisy})
    left_out = [solve(one for one in noisy if fold_of(one.group, groups) != fold) for fold in range(FOLDS)]
    shares = solve(noisy)
    table: list[list[Any]] = []
    for folder, targets in exact.items():
        is_fit = folder in args.folders
        scores = [score(one, left_out[fold_of(one.group, groups)] if is_fit else shares) for one in targets]
        table += _rows(folder.name, scores)
    headers = ["set", "targets", "mask", "before", "head", "edge mask", "before", "head", "gain", "lose"]
    print_table(headers, table, title="mean overlap, error of an edge in sizes")
    head = BoxHead(*(round(float(share), 2) for share in shares))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(asdict(head)) + "\n", encoding="utf-8")
    spread = np.ptp(left_out, axis=0)
    print(f"{args.out}: {head}; without a part of the scenes they differ by {spread[0]:.2f}, {spread[1]:.2f}")
    return 0


def _all(folder: Path) -> list[Edges]:
    found = (read(path) for path in sorted(folder.glob("*.npz")))
    return [one for one in found if one is not None]
