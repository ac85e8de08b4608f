"""Notices images that do not change: a camera or encoder that hangs may repeat its last image for ever."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FROZEN_S = 1.0
"""Images of which not one pixel has changed for so long are reported, s. Real pictures have noise; drawn
ones, and those that are coded at a low rate, may rightly stay the same."""
# How many bytes are compared first: nearly all images differ there.
SAMPLE = 4096


class StillWatch:
    """For how long the images of one stream have been the same. ``now_s``: of one steady clock."""

    def __init__(self) -> None:
        self._last: NDArray[np.uint8] | None = None
        self._since_s = 0.0

    def look(self, data: NDArray[np.uint8], now_s: float) -> float:
        """Take the bytes of the next image's pixels, or of its JPEG, uint8 [N]; they must stay unchanged.

        Returns for how long, s, all images have been equal to this one; 0 when the last one differs.
        """
        last, self._last = self._last, data
        if last is None or _differ(last, data):
            self._since_s = now_s
        return now_s - self._since_s


def _differ(a: NDArray[np.uint8], b: NDArray[np.uint8]) -> bool:
    step = max(1, len(a) // SAMPLE)
    return not (np.array_equal(a[::step], b[::step]) and np.array_equal(a, b))


def frozen_text(still_s: float) -> str:
    """Return a warning on how long, s, images have not changed, with the remedy; empty below the limit."""
    if still_s < FROZEN_S:
        return ""
    fault = f"not one pixel of the images has changed for {still_s:.0f} s"
    return f"{fault}: check whether the camera or its encoder hangs"
