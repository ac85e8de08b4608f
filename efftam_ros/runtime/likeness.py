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


def sampled(features: NDArray[np.float32], boxes: NDArray[np.float32]) -> NDArray[np.float32]:
    """The features over boxes.

    Args:
        features: float32 [C, G, G].
        boxes: float32 [n, 4] left, top, right, bottom edges, network px; NaN is read as 0.

    Returns:
        float32 [n, SAMPLES^2, C], row by row of each box; beyond the outer cells' centres theirs go on.
    """
    grid = features.shape[1]
    share = (np.arange(SAMPLES, dtype=np.float32) + 0.5) / SAMPLES
    edges = np.nan_to_num(boxes)[:, :, None]
    x = ((edges[:, 0] + share * (edges[:, 2] - edges[:, 0])) / STRIDE - 0.5).clip(0, grid - 1)
    y = ((edges[:, 1] + share * (edges[:, 3] - edges[:, 1])) / STRIDE - 0.5).clip(0, grid - 1)
    x, y = np.tile(x, SAMPLES), np.repeat(y, SAMPLES, axis=1)  # [n, SAMPLES^2]
    column, row = np.minimum(x.astype(np.intp), grid - 2), np.minimum(y.astype(np.intp), grid - 2)
    right, below = (x - column)[..., None], (y - row)[..., None]
    cells = features.transpose(1, 2, 0)
    above = cells[row, column] * (1 - right) + cells[row, column + 1] * right
    under = cells[row + 1, column] * (1 - right) + cells[row + 1, column + 1] * right
    return np.asarray(above * (1 - below) + under * below, np.float32)


def cosines(seen: NDArray[np.float32], templates: NDArray[np.float32]) -> NDArray[np.float32]:
    """Place by place: ``seen`` [n, P, C] with ``templates`` [T, P, C], float32 [n, T, P]."""
    product = np.einsum("npc,tpc->ntp", seen, templates)
    lengths = np.linalg.norm(seen, axis=2)[:, None] * np.linalg.norm(templates, axis=2)
    return np.asarray(product / np.maximum(lengths, 1e-12), np.float32)
