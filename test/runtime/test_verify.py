"""The check of frames against the CPU's: what agrees, and that a fault is found and its stage named."""

from __future__ import annotations

import ctypes
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from runtime.cuda.fake_memory import RaceError
from runtime.cuda.shim import shared_shim
from support.gpu_rig import Rig

from efftam_ros.core.geometry import View
from efftam_ros.core.types import Image, MemoryPlan
from efftam_ros.runtime.bundle import default_bundle
from efftam_ros.runtime.device.memory import MemoryLayout
from efftam_ros.runtime.frame_state import Decoded
from efftam_ros.runtime.verify import (
    INT8_FACTOR,
    LIMITS,
    TENSOR_LIMIT,
    Agreement,
    AgreementRecord,
    Deviation,
    Reference,
    deviation,
)

Plant = Callable[[Rig, pytest.MonkeyPatch], None]
LIMIT = LIMITS["box"]


@cache
def reference(max_targets: int) -> Reference:
    return Reference(default_bundle(), max_targets)


@contextmanager
def flown(max_targets: int = 1, **options: bool) -> Iterator[Rig]:
    rig = Rig(default_bundle(), max_targets=max_targets, **options)
    try:
        yield rig
    finally:
        rig.pipeline.close()


FIRST = [
    "image 0 (bgr8), first target prompted",
    "image 1 (nv12), first target tracked",
    "image 2 (mono8), first target tracked",
    "image 3 (bgr8), first target tracked",
    *(f"window {index} of the search in image 4" for index in range(3)),
    "image 4 (nv12), first target tracked",
]
ANOTHER = ["image 5 (mono8), second target prompted", "image 6 (bgr8), second target tracked"]
BESIDE_IT = [
    "image 5 (mono8), first target tracked",
    "image 6 (bgr8), first target tracked",
    *(f"image 7 (nv12), {which} target tracked" for which in ("first", "second")),
]


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(
    "options", [{}, {"zero_copy": True}, {"tensorrt": True}], ids=lambda options: str(options)
)
def test_a_pipeline_that_is_right_stays_far_below_the_limits(count: int, options: dict[str, bool]) -> None:
    with flown(count, **options) as rig:
        agreement = reference(count).judge(rig.pipeline, "fp32")
    assert agreement.fault == ""
    for deviations in (agreement.flown, agreement.stages):
        frames = {found.frame for found in deviations}
        assert frames == {*FIRST, *ANOTHER, *(BESIDE_IT if count == 2 else ())}
    assert {found.stage for found in agreement.stages} == {
        "preprocess", "image_encoder", "prompt_encoder", "memory_attention", "mask_decoder", "mask", "search",
        "memory_encoder",
    }  # fmt: skip
    assert max(found.value / found.limit for found in (*agreement.flown, *agreement.stages)) < 0.4


def wrong_kernel(name: str, output: int, nbytes: int) -> Plant:
    """A kernel that leaves zeros, of a mask ones, in the first bytes of one of its arguments."""

    def plant(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        right = shared_shim().launch

        def launch(kernel, grid, block, params):
            right(kernel, grid, block, params)
            if kernel == name:
                argument = (ctypes.c_void_p * (output + 1)).from_address(params)[output]
                at = ctypes.c_void_p.from_address(argument).value
                ctypes.memset(at, 1 if name == "mask_upsample" else 0, nbytes)

        rig.gpu.kernels = launch

    return plant


def swapped_slots(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest two memories take each other's temporal row."""
    right = MemoryLayout.write_plan

    def write(self: MemoryLayout, plan: MemoryPlan, out: np.ndarray, first: int) -> None:
        right(self, plan, out, first)
        out[[0, self.rows - 1]] = out[[self.rows - 1, 0]]

    monkeypatch.setattr(MemoryLayout, "write_plan", write)


def another_slot(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    right = rig.pipeline._remember
    monkeypatch.setattr(rig.pipeline, "_remember", lambda one: right(one._replace(slot=one.slot + 1)))


def always_seen(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    right = rig.pipeline._remember
    monkeypatch.setattr(rig.pipeline, "_remember", lambda one: right(one._replace(present=True)))


def features_of_the_frame_before(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    right = rig.pipeline._has_features

    def has_features(image: Image, view: View) -> bool:
        return right(image, view) or rig.pipeline._present is not None

    monkeypatch.setattr(rig.pipeline, "_has_features", has_features)


def features_that_are_not_kept_apart(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rig.pipeline._tensors, "keep_features", lambda stream, lane: None)


@pytest.mark.parametrize(
    ("plant", "stage"),
    [
        (wrong_kernel("preprocess", 2, 40_000), "output image of preprocess deviates"),
        (wrong_kernel("choose_candidate", 3, 4_000), "output ring_maps of memory_encoder deviates"),
        (wrong_kernel("mask_upsample", 2, 20_000), "output mask of mask deviates"),
        (swapped_slots, "output conditioned of memory_attention deviates"),
        (another_slot, "output ring_maps of memory_encoder deviates"),
        (always_seen, "output ring_maps of memory_encoder deviates"),
        (features_of_the_frame_before, "output image of preprocess deviates"),
        (features_that_are_not_kept_apart, "output ring_maps of memory_encoder deviates"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_fault_is_found_and_its_stage_named(
    plant: Plant, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 2 if plant is features_that_are_not_kept_apart else 1
    with flown(count) as rig:
        plant(rig, monkeypatch)
        agreement = reference(count).judge(rig.pipeline, "fp32")
    assert stage in agreement.fault
    assert re.search(r"deviates by [\d.e+]+; the limit is 0\.(02|1)$", agreement.fault)


def test_whatever_a_pipeline_prefers_the_cpus_choice_is_compared_and_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with flown() as rig:
        right = rig.pipeline._tensors.answers_of

        def reversed_ious(place: int) -> Decoded:
            found = right(place)
            return found._replace(ious=found.ious[::-1])

        monkeypatch.setattr(rig.pipeline._tensors, "answers_of", reversed_ious)
        agreement = reference(1).judge(rig.pipeline, "fp32")
    assert {found.output for found in agreement.flown if found.is_wrong} == {"predicted IoU"}


def no_event_behind_the_preprocessing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rig.stream, "wait", lambda event: None)


def no_wait_of_the_host(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    # Of frames that are timed the driver refuses to read times of what has not run.
    rig.pipeline.stage_interval, rig.pipeline._clock._frames = 1000, 1
    monkeypatch.setattr(rig.pipeline._answered, "wait", lambda: None)


@pytest.mark.parametrize(
    ("plant", "named"),
    [(no_event_behind_the_preprocessing, "preprocess"), (no_wait_of_the_host, "mask_decoder")],
)
def test_a_missing_wait_is_run_into(plant: Plant, named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake GPU refuses the race itself, naming the work; on a real one the results differ."""
    with flown() as rig:
        plant(rig, monkeypatch)
        with pytest.raises((RaceError, RuntimeError), match=named):
            reference(1).judge(rig.pipeline, "fp32")


def test_of_a_missing_wait_that_stages_hide_the_frames_in_flight_tell() -> None:
    good, bad = (Deviation("image 1", "mask_decoder", "box", value, LIMIT) for value in (0.0, 0.4))
    assert "a wait is missing" in Agreement((bad,), (good,), 0.0).fault
    assert (
        Agreement((good,), (bad,), 0.0).fault
        == "image 1: output box of mask_decoder deviates by 0.4; the limit is 0.05"
    )
    assert Agreement((good,), (good,), 0.0).fault == ""
    assert "deviates by nan" in Agreement((good,), (replace(good, value=float("nan")),), 0.0).fault


@pytest.mark.parametrize("value", [1.01 * LIMIT, float("inf"), float("nan")])
def test_a_value_beyond_the_limit_or_none_is_wrong(value: float) -> None:
    assert Deviation("image 1", "search", "box", value, LIMIT).is_wrong
    assert not Deviation("image 1", "search", "box", LIMIT, LIMIT).is_wrong


def test_int8_has_wider_limits() -> None:
    with flown() as rig:
        limits = {found.limit for found in reference(1).judge(rig.pipeline, "int8").flown}
    assert limits == {INT8_FACTOR * limit for limit in (TENSOR_LIMIT, *LIMITS.values())}


@pytest.mark.parametrize(
    ("output", "wanted", "value", "found"),
    [
        ("box", [10, 10, 20, 50], [10, 9, 20, 50], 0.05),
        ("box", [np.nan] * 4, [np.nan] * 4, 0.0),
        ("box", [10, 10, 30, 30], [np.nan] * 4, np.inf),
        ("presence", [0.5], [0.4], 0.1),
        ("mask", [0, 0, 255, 255], [0, 255, 255, 255], 1 / 3),
        ("mask", [0, 0], [0, 0], 0.0),
        ("features", [3.0, -4.0], [3.0, -3.0], 0.2),
        ("features", [3.0, -4.0], [3.0], np.inf),
        ("features", [3.0, np.nan], [np.nan, 3.0], np.inf),
    ],
)
def test_deviations_are_in_the_units_of_the_output(output, wanted, value, found) -> None:
    dtype = np.uint8 if output == "mask" else np.float32
    assert deviation(output, np.array(wanted, dtype), np.array(value, dtype)) == pytest.approx(found)


class TestTheRecord:
    """That a pipeline agreed is kept beside the engines, for what the results depend on."""

    good = Agreement((Deviation("image 1", "search", "box", 0.0, LIMIT),), (), 0.0)
    bad = Agreement((Deviation("image 1", "search", "box", 1.0, LIMIT),), (), 0.0)

    def test_is_found_by_all_its_parts(self, tmp_path: Path) -> None:
        folder = tmp_path / "engines"
        AgreementRecord(folder, {"made_of": "a", "targets": 1}).keep(self.good)
        assert AgreementRecord(folder, {"targets": 1, "made_of": "a"}).agreed
        other = AgreementRecord(folder, {"made_of": "b", "targets": 1})
        assert not other.agreed
        other.keep(self.good)
        assert other.agreed
        assert AgreementRecord(folder, {"made_of": "a", "targets": 1}).agreed, "each has a file of its own"

    @pytest.fixture
    def record(self, tmp_path: Path) -> AgreementRecord:
        """Of an agreement."""
        record = AgreementRecord(tmp_path, {"made_of": "a"})
        record.keep(self.good)
        assert record.agreed
        return record

    def test_is_removed_by_a_disagreement(self, record: AgreementRecord) -> None:
        record.keep(self.bad)
        assert not record.agreed

    @pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"key": 1}'])
    def test_counts_only_whole(self, record: AgreementRecord, text: str) -> None:
        assert json.loads(record.path.read_text())["deviations"][0]["stage"] == "search"
        record.path.write_text(text)
        assert not record.agreed

    @pytest.mark.parametrize("part", ["file", "folder"])
    def test_that_everyone_may_write_does_not_count(self, record: AgreementRecord, part: str) -> None:
        (record.path if part == "file" else record.path.parent).chmod(0o777)
        assert not record.agreed

    def test_needs_no_folder_that_can_be_written(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        record = AgreementRecord(tmp_path / "file", {})
        record.keep(self.good)
        assert not record.agreed
