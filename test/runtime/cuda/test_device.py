"""Opening a GPU: what is there, what is refused before anything runs; and its memory."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from runtime.cuda.fake_cuda import FakeDevice, FakeGpu
from runtime.cuda.fake_status import ORIN_AGX, ORIN_NANO, ORIN_NX
from runtime.cuda.samples import PTX

from efftam_ros.core.errors import BackendError
from efftam_ros.runtime.cuda.api import Cuda, CudaError, DeviceFacts, open_device
from efftam_ros.runtime.cuda.memory import DeviceBuffer, HostBuffer
from efftam_ros.runtime.cuda.module import KernelModule

ORIN = FakeDevice("Orin", (8, 7), integrated=True)
DESKTOP = FakeDevice("RTX", (8, 9))
JUST_OVER_8 = FakeDevice("RTX", (8, 9), total_bytes=(8 << 30) + 1)


def wrapped(fake: FakeGpu) -> Cuda:
    return Cuda(fake.driver)


def test_an_open_gpu_says_what_it_is() -> None:
    fake = FakeGpu("12.9", (DESKTOP, ORIN), driver_version=12020, total_bytes=8_000_000_000)
    assert open_device(wrapped(fake), 1) == DeviceFacts(
        index=1,
        name="Orin",
        compute_capability=(8, 7),
        multiprocessors=16,
        total_bytes=8_000_000_000,
        free_bytes=8_000_000_000,
        integrated=True,
        driver_version=12020,
    )


def test_each_gpu_s_context_is_taken_once_and_given_back() -> None:
    fake = FakeGpu(device=(DESKTOP, ORIN))
    cuda = wrapped(fake)
    for index in (0, 1, 0):
        cuda.make_current(index)
    assert fake.driver.functions.retained == {0: 1, 1: 1}
    for _ in range(2):
        cuda.close()
        assert fake.driver.functions.retained == {0: 0, 1: 0}


@pytest.mark.parametrize("index", [2, -1])
def test_a_gpu_that_is_not_there_is_refused_with_those_that_are(index: int) -> None:
    fake = FakeGpu(device=(DESKTOP, ORIN))
    with pytest.raises(BackendError) as refusal:
        open_device(wrapped(fake), index)
    assert str(refusal.value) == f"there is no GPU {index}; choose one of: 0 (RTX), 1 (Orin)"
    assert not fake.calls("cuCtxSetCurrent")


def test_too_little_memory_is_refused_with_the_numbers() -> None:
    fake = FakeGpu(device=DESKTOP, total_bytes=4_000_000_000)
    cuda = wrapped(fake)
    open_device(cuda)
    cuda.call("cuMemAlloc", 1_000_000)
    with pytest.raises(
        BackendError,
        match=r"GPU 0 \(RTX\) has 3999 MB of 4000 MB free and 4000 MB are needed; stop other",
    ):
        open_device(cuda, needed_bytes=3_999_500_000)
    open_device(cuda, needed_bytes=3_999_000_000)
    open_device(wrapped(FakeGpu(device=ORIN, total_bytes=4_000_000_000)), needed_bytes=5_000_000_000)


def test_a_driver_that_is_missing_or_old_is_refused_first() -> None:
    for driver in (0, 12080):
        fake = FakeGpu("13", driver_version=driver)
        with pytest.raises(BackendError, match="driver"):
            open_device(wrapped(fake))
        assert not fake.calls("cuCtxSetCurrent")


@pytest.mark.parametrize(
    "call", ["cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuMemGetInfo", "cuDeviceGetAttribute"]
)
def test_a_gpu_that_fails_while_it_opens_is_unavailable(fake: FakeGpu, call: str) -> None:
    fake.fail(call, 46)
    with pytest.raises(BackendError, match=f"GPU 0 does not open; {call} failed: .*nvidia-smi"):
        open_device(wrapped(fake))


@pytest.mark.parametrize("is_current", [False, True])
def test_another_thread_needs_the_device_made_current(cuda: Cuda, is_current: bool) -> None:
    def load() -> str:
        if is_current:
            cuda.make_current(0)
        try:
            KernelModule(cuda, PTX).close()
        except CudaError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(1) as pool:
        assert ("call make_current" in pool.submit(load).result()) == (not is_current)


@pytest.mark.parametrize(
    ("device", "memory_gib"), [(ORIN_AGX, 60), (ORIN_NX, 16), (ORIN_NANO, 4), (JUST_OVER_8, 10)]
)
def test_the_boards_that_engines_are_made_for_have_memory_in_even_gib(
    device: FakeDevice, memory_gib: int
) -> None:
    assert open_device(wrapped(FakeGpu(device=device))).memory_gib == memory_gib


KINDS = pytest.mark.parametrize("kind", [DeviceBuffer, HostBuffer])


@KINDS
class TestEveryBuffer:
    def test_is_freed_once_and_has_no_address_then(self, fake: FakeGpu, cuda: Cuda, kind: type) -> None:
        buffer = kind(cuda, 100)
        before = len(fake.memory.alive)
        for _ in range(2):
            buffer.free()
            with pytest.raises(ValueError, match="was freed"):
                _ = buffer.pointer
        assert len(fake.memory.alive) == before - 1

    def test_can_be_freed_after_the_gpu_was_lost(self, fake: FakeGpu, cuda: Cuda, kind: type) -> None:
        buffer = kind(cuda, 100)
        fake.lose_device()
        buffer.free()

    @pytest.mark.parametrize("nbytes", [0, -5])
    def test_has_at_least_one_byte(self, cuda: Cuda, kind: type, nbytes: int) -> None:
        with pytest.raises(ValueError, match=f"a buffer of {nbytes} bytes"):
            kind(cuda, nbytes)


def test_too_large_a_buffer_says_how_large(cuda: Cuda) -> None:
    with pytest.raises(CudaError, match=r"^cuMemAlloc failed: .*\(2\); 9000 MB requested; stop other"):
        DeviceBuffer(cuda, 9_000_000_000)


class TestAHostBuffer:
    def test_is_pinned_and_mapped(self, fake: FakeGpu, cuda: Cuda) -> None:
        HostBuffer(cuda, 64)
        (call,) = fake.calls("cuMemHostAlloc")
        assert call.summary == "64, 3"

    def test_is_seen_as_bytes_and_as_any_array_on_the_same_memory(self, cuda: Cuda) -> None:
        host = HostBuffer(cuda, 64)
        view = host.view(np.float32, (2, 3), offset=8)
        view[:] = 1.5
        assert (host.array.dtype, host.array.ctypes.data, view.shape) == (np.uint8, host.pointer, (2, 3))
        assert (host.array[8:32].view(np.float32) == 1.5).all()

    @pytest.mark.parametrize(("shape", "offset"), [((17,), 0), ((2,), 60), ((1,), -4)])
    def test_gives_no_view_beyond_its_end(self, cuda: Cuda, shape: tuple[int, ...], offset: int) -> None:
        with pytest.raises(ValueError, match="exceed the buffer of 64 bytes"):
            HostBuffer(cuda, 64).view(np.float32, shape, offset)

    def test_has_an_address_for_kernels_until_it_is_freed(self, cuda: Cuda) -> None:
        host = HostBuffer(cuda, 64)
        assert host.device_pointer
        host.free()
        with pytest.raises(ValueError, match="was freed"):
            _ = host.device_pointer

    def test_that_the_device_cannot_reach_is_given_back(self, fake: FakeGpu, cuda: Cuda) -> None:
        fake.fail("cuMemHostGetDevicePointer", 1)
        with pytest.raises(CudaError):
            HostBuffer(cuda, 64)
        assert fake.memory.alive == []
