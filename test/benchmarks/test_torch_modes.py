"""The PyTorch baselines: every mode gives FP32's answers, a compiled one never sees a new shape, and a device
that can't be used is refused with its remedy. What is compiled here is run by PyTorch's own operators."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from support.tensors import layout_of
from test_backends_agree import track

pytest.importorskip("torch", reason="the torch back ends need torch: scripts/setup_env --with-tests")
pytest.importorskip("onnx", reason="the torch back ends read weights from graphs: pip install onnx")

import torch

from benchmarks.pytorch.modes import (
    Ring,
    fixed_layout,
    key_bias,
    open_modules,
    torch_device,
)
from benchmarks.pytorch.timing import AFTER_THE_WAIT, EventTimer
from benchmarks.pytorch.torch_pipeline import TorchPipeline
from efftam_ros.core.errors import BackendError
from efftam_ros.core.types import MemoryPlan
from efftam_ros.runtime.bundle import Bundle
from efftam_workshop.agreement import compare
from efftam_workshop.model.compact.network import SPEC as COMPACT
from efftam_workshop.model.efficienttam.configurations import CONFIGURATIONS, Configuration, Pooling
from efftam_workshop.model.efficienttam.network import EfficientTAM
from efftam_workshop.model.loading import load_bundle_network

CPU = torch.device("cpu")
PLAIN, POOLED = (CONFIGURATIONS[name].spec for name in ("efficienttam_ti_512x512", "efficienttam_ti_1"))
BOX_PX, IOU, PRESENCE, MASK_SHARE = 0.5, 0.01, 0.2, 0.01
"""How far bfloat16 may be from FP32; measured: 0.2 px, 0.003, 0.04, 0.003 of the mask's pixels."""


def replaying(graph, _inputs):
    """A compiler whose results lie where its next run overwrites them, as those of CUDA graphs do."""
    results: list[torch.Tensor] = []

    def run(*arguments):
        found = graph(*arguments)
        if not results:
            results.extend(tensor.clone() for tensor in found)
        for result, tensor in zip(results, found, strict=True):
            result.copy_(tensor)
        return tuple(results)

    return run


def opened(bundle: Bundle, mode: str) -> TorchPipeline:
    return TorchPipeline(load_bundle_network(bundle.folder), threads=2, mode=mode, compiler=replaying)


@pytest.fixture(scope="module")
def compiled(shipped: Bundle) -> TorchPipeline:
    return opened(shipped, "compiled")


@pytest.fixture(scope="module")
def exact(shipped: Bundle) -> list:
    return list(track(opened(shipped, "fp32")))


@pytest.fixture
def recompiling_is_an_error(compiled: TorchPipeline) -> Iterator[None]:
    with torch._dynamo.config.patch(error_on_recompile=True):
        yield


def assert_close(found: list, exact: list) -> None:
    for (candidates, mask), (wanted, wanted_mask) in zip(found, exact, strict=True):
        assert np.abs(candidates.boxes - wanted.boxes).max() < BOX_PX
        assert np.abs(candidates.ious - wanted.ious).max() < IOU
        assert candidates.presence_logit == pytest.approx(wanted.presence_logit, abs=PRESENCE)
        assert np.count_nonzero(mask != wanted_mask) < MASK_SHARE * np.count_nonzero(wanted_mask)


@pytest.mark.slow
def test_bfloat16_tracks_as_fp32_does_but_for_rounding(shipped: Bundle, exact: list):
    found = list(track(opened(shipped, "bf16")))
    assert_close(found, exact)
    assert any((a.ious != b.ious).any() for (a, _), (b, _) in zip(found, exact, strict=True))


@pytest.mark.slow
def test_a_compiled_clip_tracks_as_fp32_does_and_compiles_nothing_after_opening(
    compiled: TorchPipeline, exact: list, recompiling_is_an_error: None
):
    assert_close(list(track(compiled)), exact)


@pytest.mark.slow
@pytest.mark.parametrize("pooling", list(Pooling))
def test_the_fixed_form_attends_as_the_free_one_does(pooling: Pooling):
    torch.manual_seed(1)
    network = EfficientTAM(Configuration("small", 96, 192, 3, pooling)).eval()
    spec = network.spec
    free, fixed = (open_modules(network, CPU, mode, "eager") for mode in ("bf16", "compiled"))
    ring = Ring(spec, 8, CPU)
    for slot in range(8):
        ring.store(slot, torch.randn(36, 64), torch.randn(256))
    features = torch.randn(1, 256, 6, 6)
    for plan in (
        MemoryPlan((3,), (6,), (3,)),
        MemoryPlan((2, 7, 1), (6, 0, 3), (2, 7, 1, 5)),
        MemoryPlan(tuple(range(7)), (6, 0, 1, 2, 3, 4, 5), tuple(range(8)) * 2),
    ):
        with torch.inference_mode():
            wanted = free.attend(features, ring, plan).float()
            found = fixed.attend(features, ring, plan).float()
        assert (found - wanted).square().mean().sqrt() < 0.02 * wanted.std()


@pytest.mark.parametrize("spec", [COMPACT, PLAIN, POOLED], ids=lambda spec: spec.name)
@pytest.mark.parametrize("rows", [(6,), (6, 0), (6, 0, 1, 2, 3, 4, 5)])
@pytest.mark.parametrize("pointers", [0, 1, 16])
def test_the_key_bias_is_that_of_the_exported_graph(spec, rows: tuple[int, ...], pointers: int):
    used = torch.zeros(7, dtype=torch.bool)
    used[list(rows)] = True
    found = key_bias(spec, used, torch.arange(16) < pointers)
    assert np.array_equal(found, compare.key_bias(layout_of(spec), rows, pointers))


@pytest.mark.parametrize(
    ("spec", "plan"),
    [
        (PLAIN, MemoryPlan((1, 2), (6, 6), (1,))),
        (PLAIN, MemoryPlan((1,), (6,), tuple(range(17)))),
        (POOLED, MemoryPlan((1,), (2,), (1,))),
    ],
    ids=["two maps in a row", "too many pointers", "pooled, a single map in another row"],
)
def test_a_plan_that_the_fixed_form_cannot_hold_is_an_error(spec, plan: MemoryPlan):
    with pytest.raises(ValueError, match="use mode fp32 or bf16"):
        fixed_layout(spec, plan, empty=24)


@pytest.mark.parametrize(
    ("first", "more", "name"),
    [
        ("Found no NVIDIA driver on your system", ". Please check that you have one.\nMore", "cuda"),
        ("CUDA error: no kernel image is available for execution on the device", "\nCUDA ...", "cuda:3"),
    ],
)
def test_a_device_that_pytorch_can_not_use_is_refused_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, first: str, more: str, name: str
):
    def refused(*_, **__):
        raise RuntimeError(first + more)

    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "set_device", refused)
    with pytest.raises(BackendError) as refusal:
        torch_device(name)
    assert refusal.value.reason.endswith(f"{name}: {first}")
    assert "pytorch.org" in refusal.value.remedy


class Device:
    """Work that is done when the host waits: an event has a time from then on. Each record takes 1 ms."""

    def __init__(self) -> None:
        self.now, self.waits = 0, 0
        self.done = 0

    def event(self) -> Event:
        return Event(self)

    def wait(self) -> None:
        self.done = self.now
        self.waits += 1


class Event:
    def __init__(self, device: Device) -> None:
        self.device = device

    def record(self) -> None:
        self.device.now += 1
        self.at = self.device.now

    def synchronize(self) -> None:
        self.device.wait()

    def elapsed_time(self, end: Event) -> float:
        assert max(self.at, end.at) <= self.device.done, "read before it was done"
        return float(end.at - self.at)


def test_device_times_are_read_after_the_frames_wait_and_cost_no_other():
    device = Device()
    timer = EventTimer(device.event)
    for number in range(3):
        timer.start_frame()
        with timer.stage("preprocess", on_host=True):
            pass
        with timer.stage("image_encoder"), timer.stage("mask_decoder"):
            pass
        assert set(timer.seconds) == {"preprocess"}
        device.wait()
        timer.waited()
        assert (timer.seconds["image_encoder"], timer.seconds["mask_decoder"]) == (3e-3, 1e-3)
        with timer.stage(AFTER_THE_WAIT):
            device.now += number
    assert device.waits == 3 + 1  # the first memory encoder's
    assert timer.seconds[AFTER_THE_WAIT] == 2e-3  # of the frame before, which took 1 + 1
