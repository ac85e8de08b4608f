"""Antialiased bilinear reduction of a single-channel picture, as torch's ``interpolate(antialias=True)`` does
it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def triangle_weights(
    source: int, target: int, pitch: float | None = None, origin: float = 0.0
) -> NDArray[np.float32]:
    """Weights [target, source] that resample a line of ``source`` pixels to ``target`` samples.

    Sample i lies at ``origin + (i + 0.5) * pitch`` in source pixel edges (default: the whole line); its
    weights fall linearly to zero at a distance of one pitch (at least one pixel) and sum to 1, also where the
    line's end cuts them. Samples outside the line weigh nothing.
    """
    pitch = source / target if pitch is None else pitch
    centres = origin + (np.arange(target) + 0.5) * pitch
    distance = np.abs(np.arange(source) + 0.5 - centres[:, None]) / max(pitch, 1.0)
    weights = np.maximum(1.0 - distance, 0.0)
    weights /= np.maximum(weights.sum(axis=1, keepdims=True), 1e-12)
    weights[(centres < 0.0) | (centres > source)] = 0.0
    return weights.astype(np.float32)


def reserve_workspace() -> None:
    """Let BLAS map its workspace now: where no memory is left later, its first product would try for ever,
    holding the interpreter's lock."""
    square = np.ones((8, 8), np.float32)
    square @ square


def reduce(
    picture: NDArray[np.float32], rows: NDArray[np.float32], columns: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Resample [H, W] by the weights of its rows [h, H] and columns [w, W] to float32 [h, w]."""
    return rows @ (picture @ columns.T)
