"""The golden weights and clip are the ones that the golden numbers were made with."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from golden.clip import SHA256
from golden.weights import ABS_SUM, weights


@pytest.mark.parametrize("size", ["ti", "s"])
def test_weights_have_the_recorded_sum(size):
    total = sum(np.abs(values.astype(np.float64)).sum() for values in weights(size).values())
    assert total == pytest.approx(ABS_SUM[size], rel=1e-6)


@pytest.mark.parametrize("dark", [False, True])
def test_clip_has_the_recorded_bytes(dark, golden_clip):
    frames, masks = golden_clip(dark)
    assert hashlib.sha256(frames.tobytes()).hexdigest() == SHA256["dark" if dark else "plain"]
    assert hashlib.sha256(masks.tobytes()).hexdigest() == SHA256["masks"]
