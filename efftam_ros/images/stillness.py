"""Detects images that do not change, as when a camera or encoder hangs and repeats its last image."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FROZEN_S = 1.0
"""If not one pixel changes for this time, s, a warning is reported. Pictures of a real camera have noise.
Drawn pictures, and video that is coded at a low bit rate, may be identical without a fault."""
# About this many bytes are compared first, because nearly all images already differ in these.
SAMPLE = 4096


class StillWatch:
    """Measures for how long the images of one stream have been identical."""

    def __init__(self) -> None:
        self._last: NDArray[np.uint8] | None = None
        self._since_s = 0.0

    def look(self, data: NDArray[np.uint8], now_s: float) -> float:
        """Compare the next image with the last one.

        ``data``: the bytes of its pixels, or of its JPEG, uint8 [N], which the caller must not change later;
        ``now_s``: time on a steady clock, s. Returns for how long the images have been identical, s; 0 if
        this image differs from the last one.
        """
        last, self._last = self._last, data
        if last is None or _differ(last, data):
            self._since_s = now_s
        return now_s - self._since_s


def _differ(a: NDArray[np.uint8], b: NDArray[np.uint8]) -> bool:
    step = max(1, len(a) // SAMPLE)
    return not (np.array_equal(a[::step], b[::step]) and np.array_equal(a, b))


def frozen_text(still_s: float) -> str:
    """Return a warning that the images have not changed, with the remedy; empty below `FROZEN_S`.

    ``still_s``: for how long the images have been identical, s.
    """
    if still_s < FROZEN_S:
        return ""
    fault = f"not one pixel of the images has changed for {still_s:.0f} s"
    return f"{fault}: check whether the camera or its encoder hangs"
