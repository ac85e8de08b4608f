"""Likeness to the selected target: the encoder's features over a box against those of a template.

Features are sampled on a grid of `SAMPLES` x `SAMPLES` places over a box; the likeness is the mean cosine of
the pairs of one place, -1..1. ``cuda/kernels/likeness.cu`` computes the same.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SAMPLES = 4
"""Places along each side of a box."""
TEMPLATES = 3
"""Templates that a pipeline keeps."""
STRIDE = 16
"""Network px per cell of the features."""
SHARES = (np.arange(SAMPLES, dtype=np.float32) + 0.5) / SAMPLES
"""Places along a side of a box, in sides."""


def sampled(features: NDArray[np.float32], boxes: NDArray[np.float32]) -> NDArray[np.float32]:
    """The features over boxes.

    Args:
        features: float32 [C, G, G].
        boxes: float32 [n, 4] left, top, right, bottom edges, network px; NaN is read as 0.

    Returns:
        float32 [n, SAMPLES^2, C], row by row of each box; beyond the outer cells' centres theirs go on.
    """
    channels, grid = features.shape[:2]
    edges = np.nan_to_num(boxes)[:, :, None]
    x = ((edges[:, 0] + SHARES * (edges[:, 2] - edges[:, 0])) / STRIDE - 0.5).clip(0, grid - 1)
    y = ((edges[:, 1] + SHARES * (edges[:, 3] - edges[:, 1])) / STRIDE - 0.5).clip(0, grid - 1)
    column, row = np.minimum(x.astype(np.int32), grid - 2), np.minimum(y.astype(np.int32), grid - 2)
    right, below = (x - column).astype(np.float32)[:, None], (y - row).astype(np.float32)[:, :, None]
    first = (grid * row[:, :, None] + column[:, None]).ravel()  # of the four cells around each place
    cells = features.reshape(channels, -1).take(np.add.outer((0, 1, grid, grid + 1), first), axis=1)
    left, above = 1 - right, 1 - below
    weights = np.stack([above * left, above * right, below * left, below * right]).reshape(4, -1)
    places = np.einsum("ckp,kp->pc", cells, weights)
    return np.ascontiguousarray(places).reshape(len(boxes), SAMPLES**2, channels)


def cosines(seen: NDArray[np.float32], templates: NDArray[np.float32]) -> NDArray[np.float32]:
    """Place by place: ``seen`` [n, P, C] with ``templates`` [T, P, C], float32 [n, T, P]."""
    product = np.einsum("npc,tpc->ntp", seen, templates)
    lengths = np.linalg.norm(seen, axis=2)[:, None] * np.linalg.norm(templates, axis=2)
    return np.asarray(product / np.maximum(lengths, 1e-12), np.float32)
