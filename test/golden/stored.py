"""Reads the golden files of the network's modules.

A tensor ``key`` is stored as float32 samples ``full.ravel()[::step]`` with ``key/step``, ``key/shape`` (of
the full tensor) and ``key/stats`` (sum, mean, population standard deviation, largest magnitude, float64).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FOLDER = Path(__file__).parent


class StoredModules:
    """The golden arrays of one configuration: ``StoredModules("ti_512x512")``."""

    def __init__(self, name: str) -> None:
        self._path = FOLDER / f"modules_{name}.npz"

    @property
    def _arrays(self) -> dict[str, NDArray[Any]]:
        return _read(self._path)

    def names(self) -> set[str]:
        """Names of the tensors stored; reads no tensor, as every process that collects the tests asks."""
        with np.load(self._path) as stored:
            held = set(stored.files)
        return {key for key in held if f"{key}/step" in held}

    def full(self, key: str) -> NDArray[np.float32]:
        """A tensor that is stored whole."""
        assert self._arrays[f"{key}/step"] == 1, f"{key} is stored as samples"
        return self._arrays[key].reshape(self._arrays[f"{key}/shape"])

    def plain(self, key: str) -> NDArray[np.generic]:
        """An array that is not a sampled tensor (indices, bits)."""
        return self._arrays[key]

    def deviation(self, key: str, full: NDArray[np.float32]) -> float:
        """Largest absolute difference of the samples, and of mean, standard deviation and largest
        magnitude."""
        samples, step = self._arrays[key], int(self._arrays[f"{key}/step"])
        stored_shape = tuple(int(n) for n in self._arrays[f"{key}/shape"])
        assert full.size == np.prod(stored_shape), f"{key}: {full.shape} against {stored_shape}"
        wide = full.astype(np.float64)
        stats = np.array([wide.mean(), wide.std(), np.abs(wide).max()])
        apart = np.abs(full.ravel()[:: max(step, 1)] - samples).max()
        return float(max(apart, np.abs(stats - self._arrays[f"{key}/stats"][1:]).max()))


@cache
def _read(path: Path) -> dict[str, NDArray[Any]]:
    """A file's arrays, read-only: every test of a configuration gets the same ones."""
    with np.load(path) as stored:
        arrays = {key: stored[key] for key in stored.files}
    for array in arrays.values():
        array.flags.writeable = False
    return arrays
