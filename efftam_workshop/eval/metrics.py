"""Scores of single-object tracking from boxes and masks.

The tracker is started once, with the first true box. Frame 0 is not scored. Frames without a true box (the
target is absent) count only in ``false_claims``. A frame without a result has overlap 0 and an infinite
centre error.

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
"""Smallest IoU at which a box counts as being on an object, for id switches."""

Boxes = NDArray[np.float64]


@dataclass(frozen=True)
class Scores:
    """Scores of one run, each from 0 to 1.

    ``ao``: mean overlap (IoU). ``auc``: share of frames with an overlap strictly above a threshold, mean over
    21 thresholds. ``sr50``: share of frames with an overlap above 0.5. ``precision``: share of frames with a
    centre error of at most 20 px. ``norm_precision``: share of frames whose centre error, in units of the
    true box's sides, is at most a threshold, mean over 51 thresholds from 0 to 0.5. ``j``: mean overlap of
    masks, NaN without masks. ``false_claims``: share of all frames after the first with a box reported as
    measured although the target is absent or overlaps it by less than 0.1. ``frames``: number of scored
    frames.
    """

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
    """Score boxes [N, 4] (x, y, w, h) against the truth [N, 4]; NaN means absent or no result.

    ``claimed`` [N]: whether the box was reported as measured (default: all boxes). ``j``: mean overlap of
    masks. Raises ValueError if the shapes differ or no frame can be scored.
    """
    truth, predicted = np.asarray(truth, np.float64), np.asarray(predicted, np.float64)
    if truth.shape != predicted.shape or truth.ndim != 2 or truth.shape[1] != 4:
        raise ValueError(f"truth is {truth.shape}, predicted {predicted.shape}; both must be [N, 4]")
    answered = known_rows(predicted)
    claimed = answered if claimed is None else answered & claimed
    scored = known_rows(truth)
    scored[0] = False
    if not scored.any():
        raise ValueError("no frame after the first has a true box; give at least one")
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
    """Confusions among the targets of one video.

    ``switches``: how often the measured box on an object changed from one target to another. ``another``:
    number of targets that ended on another target's object. A target ends on the object that its measured box
    was on last.
    """

    targets: int
    switches: int
    another: int


def identities(truths: Boxes, answers: Boxes) -> Identities:
    """Compare measured boxes [T, N, 4] of T targets with the truth [T, N, 4] of their objects.

    A target's object is the one on which it was started. A box and an object can match if their IoU is at
    least `MATCH_IOU`. Each box matches at most one object. Pairs that matched in an earlier frame are matched
    first, the others by falling IoU. Boxes that were not measured are NaN.
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
    """Return which of the boxes [N, 4] have four finite numbers: bool [N]."""
    return np.asarray(np.isfinite(boxes).all(axis=1), np.bool_)


def overlaps(a: Boxes, b: Boxes) -> NDArray[np.float64]:
    """Return the IoU of each pair of boxes [N, 4] (x, y, w, h): [N], 0 where a box is NaN or empty."""
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
    """Return the distances [N] between the boxes' centres, infinite without a result.

    They are in px. With ``normalised`` x and y are divided by the true box's width and height.
    """
    offset = (predicted[:, :2] + predicted[:, 2:] / 2) - (truth[:, :2] + truth[:, 2:] / 2)
    if normalised:
        with np.errstate(divide="ignore", invalid="ignore"):
            offset = offset / truth[:, 2:]
    distance = np.hypot(offset[:, 0], offset[:, 1])
    return np.where(np.isnan(distance), np.inf, distance)


def success_curve(iou: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of frames whose overlap is strictly above each of `SUCCESS_THRESHOLDS`: [21]."""
    return np.asarray((iou[None, :] > SUCCESS_THRESHOLDS[:, None]).mean(axis=1), np.float64)


def shares_up_to(errors: NDArray[np.float64], thresholds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return for each threshold the share of frames whose error is at most the threshold."""
    return np.asarray((errors[None, :] <= thresholds[:, None]).mean(axis=1), np.float64)


def mask_overlap(truth: NDArray[np.bool_], predicted: NDArray[np.bool_]) -> float:
    """Return the region similarity J (IoU) of two masks [H, W]; 0 if both are empty."""
    union = int(np.count_nonzero(truth | predicted))
    return int(np.count_nonzero(truth & predicted)) / union if union else 0.0


def mean_scores(scores: Iterable[Scores]) -> Scores:
    """Return the mean of each score over sequences, ignoring NaN; ``frames`` is the sum.

    Raises ValueError without scores.
    """
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
