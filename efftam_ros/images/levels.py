"""Reduces 16-bit pixels to 8 bits, and detects images that hold too few grey levels."""

from __future__ import annotations

import math
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError, shown
from efftam_ros.core.types import Image
from efftam_ros.images.pixels import to_grey

AUTO = "auto"
# The range reaches from the percentile TAIL of the pixels to the percentile 1 - TAIL, plus a margin on both
# sides. The margin is the distance of the two percentiles times MARGIN. A small hot target is among the few
# brightest pixels. Because of the margin these pixels are not all white, and the target keeps its shape.
TAIL, MARGIN = 0.005, 0.1
# The percentiles are computed from at least this many pixels, or from all pixels of a smaller image.
SAMPLE = 20_000
# Time constants with which the range becomes wider (WIDEN_S) and narrower (NARROW_S), s. It widens fast,
# because all pixels outside the range are black or white. It narrows slowly, because a thermal camera shows
# its closed shutter for half a second. An interval between images that is longer than LONGEST_S counts as
# LONGEST_S.
WIDEN_S, NARROW_S, LONGEST_S = 0.5, 5.0, 1.0
# Narrowest range, in levels of the 16-bit pixels. A narrower range would only amplify noise.
MIN_SPAN = 16
# The user is warned if an image has fewer than FEWEST_LEVELS grey levels. A level counts if at least the
# share LEVEL_SHARE of the pixels has it.
FEWEST_LEVELS, LEVEL_SHARE = 12, 0.001


def fixed_range(text: str) -> tuple[float, float] | None:
    """Parse the range of 16-bit pixels: ``LOW,HIGH`` gives the levels of black and white, ``auto`` gives
    None.

    Raises InputError for any other text.
    """
    if text == AUTO:
        return None
    try:
        low, high = map(int, text.split(","))
    except ValueError:
        low = high = 0
    if not 0 <= low < high <= 65535:
        raise InputError(
            f"the range of 16-bit images is {shown(text)}; give {AUTO}, or LOW,HIGH with"
            " 0 <= LOW < HIGH <= 65535"
        )
    return low, high


class Levels:
    """Reduces 16-bit images of one stream to 8 bits. The range is fixed, or it follows the images.

    A range that follows the images is computed from percentiles of each image, smoothed over time. Use one
    object for each stream, so that the image of a selection and the later images have nearly the same range.
    Only one thread may use the object, but any thread may read ``text``. ``fixed``: ``auto`` or ``LOW,HIGH``,
    see `fixed_range`.
    """

    def __init__(self, fixed: str = AUTO) -> None:
        self._range, self._is_fixed = fixed_range(fixed), fixed != AUTO
        self._last_ns = 0

    @property
    def text(self) -> str:
        """The present range as a text for people; empty before the first 16-bit image."""
        if self._range is None:
            return ""
        low, high = self._range
        return f"{low:.0f} to {high:.0f}{' (fixed)' if self._is_fixed else ''}"

    def reduced(self, pixels: NDArray[Any], stamp_ns: int) -> NDArray[np.uint8]:
        """Reduce uint16 pixels [H, W] or [H, W, C] to uint8 of the same shape, C-contiguous.

        ``stamp_ns``: the image's stamp, ns. Pixels that are uint8 already are returned unchanged.
        """
        if pixels.dtype == np.uint8:
            return pixels
        low, high = self._follow(pixels, stamp_ns)
        # OpenCV saturates: pixels below the range become 0, and pixels above it 255.
        above = cv2.subtract(np.ascontiguousarray(pixels), np.full(4, round(low), np.float64))
        return np.asarray(cv2.convertScaleAbs(above, alpha=255.0 / (high - round(low))), np.uint8)

    def _follow(self, pixels: NDArray[Any], stamp_ns: int) -> tuple[float, float]:
        if self._is_fixed and self._range is not None:
            return self._range
        # A sample of the pixels is enough for percentiles, and partitioning it is faster than sorting.
        step = max(1, math.isqrt(pixels.shape[0] * pixels.shape[1] // SAMPLE))
        sample = pixels[::step, ::step].reshape(-1)
        first, last = int(TAIL * (sample.size - 1)), math.ceil((1 - TAIL) * (sample.size - 1))
        ordered = np.partition(sample, (first, last))
        dark, bright = float(ordered[first]), float(ordered[last])
        # The range is at least MIN_SPAN wide. Otherwise the noise of a uniform image would become black and
        # white.
        room = max(MARGIN * (bright - dark), (MIN_SPAN - (bright - dark)) / 2)
        low, high = max(0.0, dark - room), min(65535.0, bright + room)
        # Without smoothing, a bright reflection would darken all other pixels from one image to the next.
        if self._range is not None:
            interval_s = min(abs(stamp_ns - self._last_ns) * 1e-9, LONGEST_S)
            low = _smoothed(self._range[0], low, interval_s, low < self._range[0])
            high = _smoothed(self._range[1], high, interval_s, high > self._range[1])
        high = max(high, low + MIN_SPAN)
        self._range, self._last_ns = (low, high), stamp_ns
        return low, high


def _smoothed(before: float, now: float, interval_s: float, is_wider: bool) -> float:
    return now + (before - now) * math.exp(-interval_s / (WIDEN_S if is_wider else NARROW_S))


def few_levels(image: Image) -> str:
    """Return a warning that an image holds too few grey levels, with the remedy; empty if it holds enough."""
    grey = to_grey(image, row_step=max(1, image.height // 64))
    counts = np.bincount(grey.reshape(-1), minlength=256)
    levels = int(np.count_nonzero(counts >= LEVEL_SHARE * grey.size))
    if levels >= FEWEST_LEVELS:
        return ""
    return (
        f"the images hold only {levels} grey levels, too few to distinguish a target from its"
        " surroundings: publish unscaled 16-bit images (mono16), or correct exposure or the camera's range"
    )
