"""Rounding to bfloat16 in numpy, which has no such type."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def round_bfloat16(values: NDArray[np.float32]) -> None:
    """Round a float32 array in place to the nearest bfloat16, ties to even (the values stay float32).

    Infinities and NaN stay what they are. The array must be contiguous.
    """
    finite = np.isfinite(values)
    bits = values.view(np.uint32)
    half = ((bits >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF)
    if not finite.all():  # the carry would turn some NaN into infinity or zero
        half *= finite
        np.bitwise_or(bits, np.uint32(0x10000), out=bits, where=np.isnan(values))
    bits += half
    bits &= np.uint32(0xFFFF0000)
