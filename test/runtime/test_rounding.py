"""Rounding to bfloat16: nearest, ties to even."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from efftam_ros.runtime.frame_state import round_bfloat16


def rounded(value: float) -> float:
    array = np.array([value], np.float32)
    round_bfloat16(array)
    return float(array[0])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1.0, 1.0),
        (1.0 + 2**-8, 1.0),  # a tie, down to the even neighbour
        (1.0 + 3 * 2**-8, 1.0 + 2**-6),  # a tie, up to the even neighbour
        (-1.0 - 3 * 2**-8, -1.0 - 2**-6),
        (1e-40, 2.0**-133),  # subnormal
        (math.inf, math.inf),
        (-math.inf, -math.inf),
        (3.4e38, math.inf),  # beyond the largest bfloat16
    ],
)
def test_known_values(value: float, expected: float) -> None:
    assert rounded(value) == pytest.approx(expected, rel=1e-7, abs=0)


def test_every_nan_stays_nan() -> None:
    bits = np.array([0x7FC00000, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0x3F800000], np.uint32)
    values = bits.view(np.float32)
    round_bfloat16(values)
    assert np.isnan(values[:4]).all()
    assert values[4] == 1.0


@settings(deadline=None)
@given(st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**100), max_value=2.0**100))
def test_the_result_is_a_bfloat16_and_none_is_nearer(value: float) -> None:
    result = np.array([rounded(value)], np.float32)
    bits = int(result.view(np.uint32)[0])
    assert bits & 0xFFFF == 0
    step = abs(
        float(np.array([(bits & 0x7FFFFFFF) + 0x10000], np.uint32).view(np.float32)[0])
        - abs(float(result[0]))
    )
    assert abs(float(result[0]) - value) <= step / 2
