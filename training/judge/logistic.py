"""A logistic model, fitted and judged by footage left out in turn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
PENALTY, SWEEPS = 5.0, 60
BINS = 10


def fit(x: Array, y: Array, weight: Array, signs: Array, penalty: float = PENALTY) -> tuple[Array, float]:
    """Weights and offset of the log-odds of ``y`` (0 or 1) given ``x`` [n, f].

    ``weight`` [n]: of the rows; ``signs`` [f]: 1 or -1 where a weight may only have this sign, else 0;
    ``penalty``: of the squares of the weights of standardised numbers. By coordinates, each with a Newton
    step.
    """
    spread = x.std(axis=0)
    used = spread > 1e-6
    spread = np.where(used, spread, 1.0)
    z = (x - x.mean(axis=0)) / spread
    w, offset = np.zeros(z.shape[1]), 0.0
    odds: Array = np.zeros(len(y))
    for _ in range(SWEEPS):
        p = 1 / (1 + np.exp(-np.clip(odds, -30, 30)))
        curvature = weight * np.maximum(p * (1 - p), 1e-3)
        step = float((weight @ (y - p)) / curvature.sum())
        offset, odds = offset + step, odds + step
        for index in np.flatnonzero(used):
            p = 1 / (1 + np.exp(-np.clip(odds, -30, 30)))
            column = z[:, index]
            gradient = column @ (weight * (y - p)) - penalty * w[index]
            curve = float(column**2 @ (weight * np.maximum(p * (1 - p), 1e-3))) + penalty
            new = w[index] + gradient / curve
            if signs[index] * new < 0:
                new = 0.0
            odds += (new - w[index]) * column
            w[index] = new
    weights = w / spread
    return weights, float(offset - weights @ x.mean(axis=0))


def evened(groups: NDArray[np.int64]) -> Array:
    """Weights of rows such that a group with many rows counts less than each of them would; their mean is
    1."""
    _, inverse, counts = np.unique(groups, return_inverse=True, return_counts=True)
    weight = 1 / np.sqrt(counts[inverse])
    return np.asarray(weight / weight.mean(), np.float64)


def left_out(
    x: Array, y: Array, groups: NDArray[np.int64], signs: Array, weight: Array, folds: int = 8
) -> Array:
    """Log-odds of each row by a model of the other groups'."""
    odds, names = np.zeros(len(y)), np.unique(groups)
    for fold in range(min(folds, len(names))):
        out = np.isin(groups, names[fold::folds])
        if out.all() or not out.any():
            continue
        weights, offset = fit(x[~out], y[~out], weight[~out], signs)
        odds[out] = x[out] @ weights + offset
    return odds


def area(odds: Array, y: Array) -> float:
    """Area under the curve."""
    right, wrong = odds[y == 1], odds[y == 0]
    if not len(right) or not len(wrong):
        return float("nan")
    rank = np.concatenate([right, wrong]).argsort(kind="stable").argsort() + 1
    return float((rank[: len(right)].sum() - len(right) * (len(right) + 1) / 2) / (len(right) * len(wrong)))


def reliability(probability: Array, y: Array) -> list[tuple[float, float, int]]:
    """Mean probability, share that is right and number of rows, in ten bins of probability."""
    rows = []
    for low in np.arange(BINS) / BINS:
        of = (probability >= low) & (probability < low + 1 / BINS + (low > 0.85))
        if of.any():
            rows.append((float(probability[of].mean()), float(y[of].mean()), int(of.sum())))
    return rows


def calibration_error(rows: Sequence[tuple[float, float, int]]) -> float:
    """Mean of abs(confidence - right) over the bins."""
    return float(np.mean([abs(said - right) for said, right, _ in rows]))


def found(odds: Array, y: Array, alarms: Sequence[float] = (0.01, 0.03, 0.1)) -> list[float]:
    """Share of the wrong ones below the limit that refuses these shares of the right ones."""
    return [float(np.mean(odds[y == 0] < np.quantile(odds[y == 1], share))) for share in alarms]
