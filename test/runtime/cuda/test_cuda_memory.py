"""Device and pinned buffers."""

from __future__ import annotations

import numpy as np
import pytest
from runtime.cuda.fake_cuda import FakeGpu

from efftam_ros.runtime.cuda.api import Cuda, CudaError
from efftam_ros.runtime.cuda.memory import DeviceBuffer, HostBuffer

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
    with pytest.raises(CudaError, match=r"^cuMemAlloc failed: .*\(2\); 9000 MB asked for; stop other"):
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
        with pytest.raises(ValueError, match="of a buffer of 64"):
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
