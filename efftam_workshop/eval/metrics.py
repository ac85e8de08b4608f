"""Single-object tracking scores from boxes and masks.

One pass from the first true box, no re-initialisation. Frame 0 is given to the tracker and not scored; frames
without ground truth (absent target) count only in ``false_claims``. A frame without a result has overlap 0
and an infinite centre error.

Sources: success and precision curves, Wu, Lim and Yang, "Object Tracking Benchmark", PAMI 2015; normalised
precision, Muller et al., "TrackingNet", ECCV 2018; average overlap, Huang, Zhao and Huang, "GOT-10k", PAMI
2019; J, Perazzi et al., "A Benchmark Dataset and Evaluation Methodology for Video Object Segmentation", CVPR
2016; id switches, Bernardin and Stiefelhagen, "Evaluating Multiple Object Tracking Performance", 2008.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SUCCESS_THRESHOLDS = np.linspace(0.0, 1.0, 21, dtype=np.float64)
NORMALISED_THRESHOLDS = np.linspace(0.0, 0.5, 51, dtype=np.float64)
PRECISION_PX = 20.0
FALSE_CLAIM_IOU = 0.1
MATCH_IOU = 0.5
"""Overlap from which a box is on an object, for id switches."""

Boxes = NDArray[np.float64]


@dataclass(frozen=True)
class Scores:
    """Scores of one run, each 0..1: mean overlap ``ao``; ``auc``, mean over 21 overlap thresholds of the
    share of frames strictly above; ``sr50``, share above 0.5; ``precision``, share with a centre error of at
    most 20 px; ``norm_precision``, mean over 51 thresholds 0..0.5 of the share whose centre error, in units
    of the true box's sides, is at most that; ``j``, mean mask overlap or NaN; ``false_claims``, share of all
    frames after the first whose box was reported as measured although it overlaps the truth by less than 0.1
    or the target is absent. ``frames`` were scored."""

    ao: float
    auc: float
    sr50: float
    precision: float
    norm_precision: float
    j: float
    false_claims: float
    frames: int


def score(
    truth: Boxes, predicted: Boxes, claimed: NDArray[np.bool_] | None = None, j: float = float("nan")
) -> Scores:
    """Score boxes [N, 4] (x, y, w, h; NaN: absent or no result). ``claimed`` [N]: reported as measured
    (default: every box). Raises ValueError when the lengths differ or no frame can be scored."""
    truth, predicted = np.asarray(truth, np.float64), np.asarray(predicted, np.float64)
    if truth.shape != predicted.shape or truth.ndim != 2 or truth.shape[1] != 4:
        raise ValueError(f"truth is {truth.shape}, predicted {predicted.shape}; both must be [N, 4]")
    answered = known_rows(predicted)
    claimed = answered if claimed is None else answered & claimed
    scored = known_rows(truth)
    scored[0] = False
    if not scored.any():
        raise ValueError("no frame after the first has truth")
    every = overlaps(truth, predicted)
    iou = every[scored]
    error = centre_errors(truth, predicted)[scored]
    normalised = centre_errors(truth, predicted, normalised=True)[scored]
    wrong = claimed & ~(every >= FALSE_CLAIM_IOU)
    return Scores(
        ao=float(iou.mean()),
        auc=float(success_curve(iou).mean()),
        sr50=float((iou > 0.5).mean()),
        precision=float((error <= PRECISION_PX).mean()),
        norm_precision=float(shares_up_to(normalised, NORMALISED_THRESHOLDS).mean()),
        j=j,
        false_claims=float(wrong[1:].mean()),
        frames=int(scored.sum()),
    )


class Identities(NamedTuple):
    """Of the targets of one video: id ``switches`` (an object's box is another target's than before), and
    the targets that are on ``another``'s object when their box was last on any."""

    targets: int
    switches: int
    another: int


def identities(truths: Boxes, answers: Boxes) -> Identities:
    """Compare boxes [T, N, 4] of T targets with the truth [T, N, 4] of the objects they were started on.

    A box matches an object from `MATCH_IOU` on, each one at most; a pair that matched before goes first, then
    the greatest overlap. Boxes that were not measured are NaN.
    """
    count, switches = len(truths), 0
    matched, last_on = {one: one for one in range(count)}, list(range(count))
    for truth, answer in zip(truths.swapaxes(0, 1), answers.swapaxes(0, 1), strict=True):
        iou = np.stack([overlaps(np.broadcast_to(one, answer.shape), answer) for one in truth])
        for target in np.flatnonzero((iou >= MATCH_IOU).any(axis=0)).tolist():
            last_on[target] = int(iou[:, target].argmax())
        now: dict[int, int] = {}
        pairs = [(int(o), int(a)) for o, a in np.argwhere(iou >= MATCH_IOU)]
        for one, target in sorted(pairs, key=lambda pair: (matched[pair[0]] != pair[1], -iou[pair])):
            if one not in now and target not in now.values():
                now[one] = target
        switches += sum(matched[one] != target for one, target in now.items())
        matched |= now
    return Identities(count, switches, sum(on != target for target, on in enumerate(last_on)))


def known_rows(boxes: Boxes) -> NDArray[np.bool_]:
    """Mask [N] of the boxes [N, 4] whose four numbers are finite."""
    return np.asarray(np.isfinite(boxes).all(axis=1), np.bool_)


def overlaps(a: Boxes, b: Boxes) -> NDArray[np.float64]:
    """IoU of each pair of boxes [N, 4] (x, y, w, h); 0 where one is NaN or empty."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    low = np.maximum(a[:, :2], b[:, :2])
    high = np.minimum(a[:, :2] + a[:, 2:], b[:, :2] + b[:, 2:])
    inner = np.prod(np.clip(high - low, 0.0, None), axis=1)
    outer = (
        np.prod(np.clip(a[:, 2:], 0.0, None), axis=1) + np.prod(np.clip(b[:, 2:], 0.0, None), axis=1) - inner
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        result = inner / outer
    return np.where(np.isfinite(result), result, 0.0)


def centre_errors(truth: Boxes, predicted: Boxes, *, normalised: bool = False) -> NDArray[np.float64]:
    """Distances of the centres [N], infinite without a result.

    In px, or with ``normalised`` with x and y in units of the true box's width and height.
    """
    offset = (predicted[:, :2] + predicted[:, 2:] / 2) - (truth[:, :2] + truth[:, 2:] / 2)
    if normalised:
        with np.errstate(divide="ignore", invalid="ignore"):
            offset = offset / truth[:, 2:]
    distance = np.hypot(offset[:, 0], offset[:, 1])
    return np.where(np.isnan(distance), np.inf, distance)


def success_curve(iou: NDArray[np.float64]) -> NDArray[np.float64]:
    """Share of frames whose overlap is strictly above each of `SUCCESS_THRESHOLDS`, [21]."""
    return np.asarray((iou[None, :] > SUCCESS_THRESHOLDS[:, None]).mean(axis=1), np.float64)


def shares_up_to(errors: NDArray[np.float64], thresholds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Share of frames whose error is at most each threshold."""
    return np.asarray((errors[None, :] <= thresholds[:, None]).mean(axis=1), np.float64)


def mask_overlap(truth: NDArray[np.bool_], predicted: NDArray[np.bool_]) -> float:
    """Region similarity J of two masks [H, W]; 0 if both are empty, which are not scored."""
    union = int(np.count_nonzero(truth | predicted))
    return int(np.count_nonzero(truth & predicted)) / union if union else 0.0


def mean_scores(scores: Iterable[Scores]) -> Scores:
    """Plain mean over sequences; J over those that have it. ``frames`` are summed."""
    scores = list(scores)
    if not scores:
        raise ValueError("no scores to average")
    values = {}
    for f in fields(Scores):
        column = np.array([getattr(s, f.name) for s in scores], np.float64)
        known = column[np.isfinite(column)]
        values[f.name] = float(known.mean()) if known.size else float("nan")
    values["frames"] = sum(s.frames for s in scores)
    return Scores(**values)  # type: ignore[arg-type]
