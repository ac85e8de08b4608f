"""What counts as agreeing with the CPU."""

from __future__ import annotations

import pytest

from efftam_ros.runtime.verify.compare import ClipAgreement, Deviation
from efftam_ros.runtime.verify.verify import LEAST_OVERLAP, LEAST_WORST, MOST_DEVIATION, Agreement

GOOD = (Deviation("image_encoder", "features", 1e-3), Deviation("mask_decoder", "boxes", MOST_DEVIATION))


def clip(*overlaps: float) -> ClipAgreement:
    return ClipAgreement(overlaps, (0.0,) * len(overlaps))


@pytest.mark.parametrize("agreement", [None, clip(LEAST_OVERLAP), clip(1.0, 1.0, 1.0, 1.0, LEAST_WORST)])
def test_what_is_within_the_limits_is_well(agreement):
    assert Agreement(GOOD, agreement).fault == ""


@pytest.mark.parametrize("relative", [1.01 * MOST_DEVIATION, float("inf"), float("nan")])
def test_one_output_beyond_the_limit_is_named(relative):
    fault = Agreement((*GOOD, Deviation("memory_encoder", "map", relative)), clip(1.0)).fault
    assert fault.startswith("memory_encoder computes map with a relative error of")


@pytest.mark.parametrize("agreement", [clip(LEAST_OVERLAP - 0.001), clip(*[1.0] * 9, LEAST_WORST - 0.01)])
def test_a_clip_fails_by_its_mean_or_by_its_worst_frame(agreement):
    assert f"masks of {len(agreement.overlaps)} frames overlap" in Agreement(GOOD, agreement).fault
