"""What counts as agreeing with the CPU where engines are built."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from efftam_ros.runtime.bundle import default_bundle
from efftam_ros.runtime.device.memory import GRAPHS
from efftam_ros.runtime.verify import DISC_BOX
from efftam_workshop.agreement.compare import ClipAgreement, GraphDeviation, compare_clip, run_clip
from efftam_workshop.agreement.reference import (
    MAX_DEVIATION,
    MIN_OVERLAP,
    MIN_WORST,
    GraphAgreement,
    seeded_clip,
)
from efftam_workshop.agreement.runners import CpuRunner

GOOD = (
    GraphDeviation("image_encoder", "features", 1e-3),
    GraphDeviation("mask_decoder", "boxes", MAX_DEVIATION),
)


def clip(*overlaps: float) -> ClipAgreement:
    return ClipAgreement(overlaps, (0.0,) * len(overlaps))


@pytest.mark.parametrize("agreement", [None, clip(MIN_OVERLAP), clip(1.0, 1.0, 1.0, 1.0, MIN_WORST)])
def test_what_is_within_the_limits_is_well(agreement):
    assert GraphAgreement(GOOD, agreement).fault == ""


@pytest.fixture(scope="module")
def runners():
    return {name: CpuRunner(default_bundle().graphs[name].path) for name in GRAPHS}


def spoilt(runner, logit):
    """The decoder with this number in the place of every mask logit."""

    def run(inputs):
        results = runner(inputs)
        return results | {"masks": np.full_like(results["masks"], logit)}

    return run


@pytest.mark.parametrize(("wanted", "got", "overlap"), [(-9, -9, 1.0), (-9, 9, 0.0), (-9, math.nan, 0.0)])
def test_masks_that_are_no_numbers_overlap_with_nothing_not_even_with_an_empty_mask(
    runners, wanted, got, overlap
):
    decoder = runners["mask_decoder"]
    reference = runners | {"mask_decoder": spoilt(decoder, wanted)}
    candidate = runners | {"mask_decoder": spoilt(decoder, got)}
    frames = list(islice(seeded_clip(), 2))
    clip = compare_clip(default_bundle(), reference, candidate, frames, DISC_BOX)
    assert clip.overlaps == (overlap, overlap)
    assert (clip.mean, clip.worst) == (overlap, overlap)
    assert [math.isinf(deviation) for deviation in clip.deviations] == [math.isnan(got)] * 2


def test_a_clip_remembers_what_the_pipeline_would_store(runners):
    """Maps rounded to bfloat16 where the bundle asks for it: what is attended to has its lower bits at 0."""

    def attended(memory_dtype: str) -> np.ndarray:
        bundle = replace(default_bundle(), memory_dtype=memory_dtype)
        frames = islice(seeded_clip(), 2)
        *_, (chain,) = run_clip(bundle, [runners], frames, DISC_BOX)
        return chain.inputs["memory_attention_fixed"]["maps"].view(np.uint32) & 0xFFFF

    assert attended("float32").any()
    assert not attended("bfloat16").any()


@pytest.mark.parametrize("relative", [1.01 * MAX_DEVIATION, float("inf"), float("nan")])
def test_one_output_beyond_the_limit_is_named(relative):
    fault = GraphAgreement((*GOOD, GraphDeviation("memory_encoder", "map", relative)), clip(1.0)).fault
    assert fault.startswith("memory_encoder computes map with a relative error of")


@pytest.mark.parametrize("agreement", [clip(MIN_OVERLAP - 0.001), clip(*[1.0] * 9, MIN_WORST - 0.01)])
def test_a_clip_fails_by_its_mean_or_by_its_worst_frame(agreement):
    assert f"masks of {len(agreement.overlaps)} frames overlap" in GraphAgreement(GOOD, agreement).fault
