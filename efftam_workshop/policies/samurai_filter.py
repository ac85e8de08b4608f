"""SAMURAI's motion filter and candidate selection, exactly as the reference computes them (arXiv 2411.11922).

This module reproduces the reference at commit 76ba195 with its defects: coordinates are network pixels,
velocities are per frame, and an empty mask is a box of zeros, with which the filter may even be started. Use
this module only as a baseline, and to compare with the recorded trace of the reference. A vehicle should use
`default.DefaultPolicy`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_F = np.eye(8) + np.eye(8, k=4)
_H = np.eye(4, 8)


class ReferenceFilter:
    """Kalman filter on (cx, cy, aspect, height) and their change per frame; its noise scales with height."""

    def __init__(self, measurement: Array) -> None:
        p, q = measurement[3] / 20, measurement[3] / 160
        self.mean: Array = np.concatenate([measurement, np.zeros(4)])
        self.covariance: Array = np.diag(np.square([2 * p, 2 * p, 1e-2, 2 * p, 10 * q, 10 * q, 1e-5, 10 * q]))

    def predict(self) -> None:
        p, q = self.mean[3] / 20, self.mean[3] / 160
        noise = np.diag(np.square([p, p, 1e-2, p, q, q, 1e-5, q]))
        self.mean = _F @ self.mean
        self.covariance = _F @ self.covariance @ _F.T + noise

    def update(self, measurement: Array) -> None:
        p = self.mean[3] / 20
        spread = _H @ self.covariance @ _H.T + np.diag(np.square([p, p, 1e-1, p]))
        gain = np.linalg.solve(spread, _H @ self.covariance).T
        self.mean = self.mean + gain @ (measurement - _H @ self.mean)
        self.covariance = self.covariance - gain @ spread @ gain.T

    def edges(self) -> Array:
        """Return the predicted left, top, right, bottom, network px."""
        cx, cy, aspect, height = self.mean[:4]
        width = aspect * height
        return np.array([cx - width / 2, cy - height / 2, cx + width / 2, cy + height / 2])


def measurement(edges: Array) -> Array:
    """Convert box edges to (cx, cy, aspect, height); a height of 0 becomes 1."""
    x0, y0, x1, y1 = edges
    height = (y1 - y0) or 1.0
    return np.array([(x0 + x1) / 2, (y0 + y1) / 2, (x1 - x0) / height, height])


def reference_iou(predicted: Array, candidate: Array) -> float:
    """Return the reference's IoU: 0 for the all-zero box and for a zero union.

    As in the reference, a negative predicted height is not caught.
    """
    w = max(0.0, min(predicted[2], candidate[2]) - max(predicted[0], candidate[0]))
    h = max(0.0, min(predicted[3], candidate[3]) - max(predicted[1], candidate[1]))
    union = (
        (predicted[2] - predicted[0]) * (predicted[3] - predicted[1])
        + (candidate[2] - candidate[0]) * (candidate[3] - candidate[1])
        - w * h
    )
    return float(w * h / union) if union != 0 else 0.0


@dataclass(frozen=True)
class SamuraiConfig:
    """The reference's thresholds, equal in its ``samurai`` configurations t, s and b+."""

    motion_weight: float = 0.25
    stable_frames: int = 15
    stable_iou: float = 0.3
    min_presence_logit: float = -1.0
    memory_iou: float = 0.5
    memory_presence_logit: float = 0.0
    memory_motion_iou: float = 0.0
    max_maps: int = 7
    max_pointers: int = 16


@dataclass(frozen=True)
class ReferenceChoice:
    """The reference's decision on one frame.

    ``branch``: "initiate", "warmup" or "stable". ``index``: the chosen candidate. ``predicted``: the filter's
    edges after its prediction. ``updated_with``: the measurement that updated the filter. ``motion_iou`` of
    the chosen candidate, ``motion_ious`` and ``weighted`` of all candidates exist in the stable branch only.
    Values that do not exist are None.
    """

    branch: str
    index: int
    motion_iou: float | None = None
    predicted: Array | None = None
    motion_ious: Array | None = None
    weighted: Array | None = None
    updated_with: Array | None = None


class ReferenceSelector:
    """Chooses one of three candidates, in three phases: initiate, warm-up and stable."""

    def __init__(self, config: SamuraiConfig) -> None:
        self.config = config
        self.filter: ReferenceFilter | None = None
        self.stable = 0

    def choose(self, edges: Array, ious: Array, presence_logit: float) -> ReferenceChoice:
        """Choose a candidate.

        ``edges`` [3, 4]: boxes in network px, zeros for an empty mask. ``ious`` [3]: predicted IoUs.
        """
        c = self.config
        if not presence_logit > c.min_presence_logit:
            edges = np.zeros_like(edges)
        best = int(np.argmax(ious))
        if self.filter is None or self.stable == 0:
            self.filter = ReferenceFilter(measurement(edges[best]))
            self.stable += 1
            return ReferenceChoice("initiate", best)
        self.filter.predict()
        predicted = self.filter.edges()
        if self.stable < c.stable_frames:
            if ious[best] > c.stable_iou:
                z = measurement(edges[best])
                self.filter.update(z)
                self.stable += 1
                return ReferenceChoice("warmup", best, predicted=predicted, updated_with=z)
            self.stable = 0
            return ReferenceChoice("warmup", best, predicted=predicted)
        overlaps = np.array([reference_iou(predicted, e) for e in edges])
        weighted = c.motion_weight * overlaps + (1 - c.motion_weight) * ious
        best = int(np.argmax(weighted))
        used = None
        if ious[best] < c.stable_iou:
            self.stable = 0
        else:
            used = measurement(edges[best])
            self.filter.update(used)
        return ReferenceChoice("stable", best, float(overlaps[best]), predicted, overlaps, weighted, used)
