"""The target's appearance by descriptors of confirmed frames, in addition to the network's scores."""

from __future__ import annotations

from collections import deque
from statistics import median

import numpy as np
from numpy.typing import NDArray

Descriptor = NDArray[np.float64]

KEPT = 30  # number of descriptors of the last confirmed frames, besides the first
NEAREST = 3  # number of most similar descriptors that a new one is compared with
LEAST = 5  # number of descriptors from which a comparison is made


class Appearance:
    """Descriptors of the target so far."""

    def __init__(self) -> None:
        self._first: Descriptor | None = None
        self._last: deque[Descriptor] = deque(maxlen=KEPT)
        self._known: NDArray[np.float64] = np.empty((0, 0))  # the first and the last, one per row
        self._usual: deque[float] = deque(maxlen=KEPT)  # likeness of confirmed frames to those before them

    def add(self, descriptor: Descriptor) -> None:
        """Add the descriptor of a confirmed frame."""
        if len(self._last) >= LEAST:
            self._usual.append(self._likeness(descriptor))
        if self._first is None:
            self._first = descriptor
        self._last.append(descriptor)
        self._known = np.array([self._first, *self._last])

    def change(self, descriptor: Descriptor | None) -> float:
        """How much less similar to the target a descriptor is than those of the target usually are, 0..1; 0
        while too few are known."""
        if descriptor is None or len(self._usual) < LEAST:
            return 0.0
        return max(0.0, median(self._usual) - self._likeness(descriptor))

    def _likeness(self, descriptor: Descriptor) -> float:
        return float(np.sort(self._known @ descriptor)[-NEAREST:].mean())
