"""Arrays that notice writes beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

GUARD = 256


class Guarded:
    """An array [shape] between two strips of known bytes; its elements start as the same bytes (0xA5)."""

    def __init__(self, shape: tuple[int, ...], dtype: DTypeLike = np.float32) -> None:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        self._bytes = np.full(size + 2 * GUARD, 0xA5, np.uint8)
        self.array: NDArray[Any] = self._bytes[GUARD : GUARD + size].view(dtype).reshape(shape)

    @property
    def intact(self) -> bool:
        """True while nothing was written outside the array."""
        return bool((self._bytes[:GUARD] == 0xA5).all() and (self._bytes[-GUARD:] == 0xA5).all())
