"""The fake GPU fails where a real one would give wrong numbers, and only there."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from runtime.cuda.fake_cuda import FakeGpu
from runtime.cuda.fake_memory import (
    DefaultStreamError,
    MisuseError,
    OutOfBoundsError,
    PageableMemoryError,
    RaceError,
    UseAfterFreeError,
)
from runtime.cuda.fake_status import ORIN_NANO
from runtime.cuda.samples import COUNT, add_kernel, floats, opened

from efftam_ros.runtime.cuda.api import CudaError
from efftam_ros.runtime.cuda.memory import DeviceBuffer, HostBuffer
from efftam_ros.runtime.cuda.module import Launch
from efftam_ros.runtime.cuda.stream import Event, Stream

NBYTES = 4 * COUNT
SEEDS = range(8)


class Bench:
    """Two streams, a kernel between two device buffers, host buffers for both."""

    def __init__(self, seed: int = 0) -> None:
        self.fake = FakeGpu(seed=seed)
        self.cuda = opened(self.fake)
        self.main, self.copies = Stream(self.cuda), Stream(self.cuda)
        self.given, self.result = HostBuffer(self.cuda, NBYTES), HostBuffer(self.cuda, NBYTES)
        self.x, self.y = DeviceBuffer(self.cuda, NBYTES), DeviceBuffer(self.cuda, NBYTES)
        self.given.view(np.float32, (COUNT,))[:] = 1
        self.event = Event(self.cuda)
        self.kernel = add_kernel(self.cuda)

    def launch(self, x: DeviceBuffer, y: DeviceBuffer) -> Launch:
        return self.kernel.bind((1, 1, 1), (COUNT, 1, 1), x.pointer, y.pointer, COUNT, 1)

    def copy_in(self, stream: Stream) -> None:
        stream.copy_in(self.x.pointer, self.given, NBYTES)

    def compute(self) -> None:
        self.launch(self.x, self.y).run(self.main)


@pytest.fixture
def bench() -> Bench:
    return Bench()


class TestARace:
    def test_of_a_copy_with_a_kernel_on_another_stream_names_both(self, bench: Bench) -> None:
        bench.copy_in(bench.copies)
        with pytest.raises(RaceError, match=r"Memcpy HtoD .* and add .* no event or wait"):
            bench.compute()

    @pytest.mark.parametrize("seed", SEEDS)
    def test_is_none_with_an_event_in_between(self, seed: int) -> None:
        bench = Bench(seed)
        bench.copy_in(bench.copies)
        bench.copies.record(bench.event)
        bench.main.wait(bench.event)
        bench.compute()
        bench.main.synchronize()
        assert (floats(bench.y.pointer) == 2).all()

    def test_is_one_when_the_event_comes_too_early(self, bench: Bench) -> None:
        bench.copies.record(bench.event)
        bench.copy_in(bench.copies)
        bench.main.wait(bench.event)
        with pytest.raises(RaceError):
            bench.compute()

    @pytest.mark.parametrize("how", ["stream", "event", "query"])
    def test_is_none_once_the_host_has_waited(self, bench: Bench, how: str) -> None:
        bench.copy_in(bench.copies)
        bench.copies.record(bench.event)
        if how == "stream":
            bench.copies.synchronize()
        elif how == "event":
            bench.event.wait()
        else:
            while int(bench.cuda.driver.cuEventQuery(bench.event.handle)[0]):
                pass
        bench.compute()

    def test_is_none_between_two_that_only_read(self, bench: Bench) -> None:
        other = DeviceBuffer(bench.cuda, NBYTES)
        bench.launch(bench.x, bench.y).run(bench.main)
        bench.launch(bench.x, other).run(bench.copies)

    @pytest.mark.parametrize(
        ("columns", "rows", "is_race"),
        [
            (slice(8, 16), slice(0, 4), False),
            (slice(7, 16), slice(0, 4), True),
            (slice(0, 8), slice(2, 4), False),
            (slice(0, 8), slice(1, 4), True),
        ],
    )
    def test_of_two_parts_of_a_matrix_is_one_where_they_share_a_byte(
        self, bench: Bench, columns: slice, rows: slice, is_race: bool
    ) -> None:
        bench.main.copy_part_in(bench.x.pointer, bench.given, 64, slice(0, 2), slice(0, 8))

        def beside() -> None:
            bench.copies.copy_part_in(bench.x.pointer, bench.given, 64, rows, columns)

        if is_race:
            with pytest.raises(RaceError, match=r"Memcpy2D HtoD .* and Memcpy2D HtoD"):
                beside()
        else:
            beside()

    def test_of_a_kernel_counts_its_pointers_as_whole_blocks_unless_divided(self, bench: Bench) -> None:
        large = DeviceBuffer(bench.cuda, 2 * NBYTES)
        bench.copies.zero(large.pointer + NBYTES, NBYTES)
        with pytest.raises(RaceError):
            bench.launch(large, bench.y).run(bench.main)
        bench.fake.divide(large.pointer, NBYTES)
        bench.launch(large, bench.y).run(bench.main)

    def test_with_work_of_another_library_is_one_too(self, bench: Bench) -> None:
        bench.fake.enqueue(bench.copies.handle, "encoder", writes=[(bench.x.pointer, NBYTES)])
        with pytest.raises(RaceError, match=r"encoder .* and add"):
            bench.compute()

    def test_is_found_in_a_graph_when_it_is_launched(self, bench: Bench) -> None:
        with bench.main.capture() as graph:
            bench.compute()
        bench.copy_in(bench.copies)
        with pytest.raises(RaceError, match="add"):
            graph.launch(bench.main)


class TestStaleData:
    @pytest.mark.parametrize("seed", SEEDS)
    def test_is_what_the_host_sees_before_it_waits(self, seed: int) -> None:
        bench = Bench(seed)
        bench.result.array[:] = 0
        for _ in range(2):  # undefined again while the second frame runs, though it gives the same answer
            bench.copy_in(bench.main)
            bench.compute()
            bench.main.copy_out(bench.result, bench.y.pointer, NBYTES)
            answer = bench.result.view(np.float32, (COUNT,))
            assert np.isnan(answer).all()
            bench.main.synchronize()
            assert (answer == 2).all()

    def test_goes_in_when_the_host_reuses_a_buffer_before_the_copy(self, bench: Bench) -> None:
        bench.copy_in(bench.main)
        bench.given.array[:] = 0  # too early
        bench.compute()
        bench.main.synchronize()
        assert (floats(bench.y.pointer) == 1).all()

    def test_depends_on_the_seed_where_two_streams_are_free(self) -> None:
        orders = {self.order_of_two_streams(seed) for seed in SEEDS}
        assert orders <= {"aA", "aAbB", "abAB", "abBA", "baAB", "baBA", "bBaA"}
        assert {"aA", "aAbB", "bBaA"} <= orders

    @staticmethod
    def order_of_two_streams(seed: int) -> str:
        """What had run, in order, when the host had waited for the first of two streams."""
        bench, ran = Bench(seed), []
        for stream, names in ((bench.main, "aA"), (bench.copies, "bB")):
            for name in names:
                bench.fake.enqueue(stream.handle, name, action=partial(ran.append, name))
        bench.main.synchronize()
        return "".join(ran)


class TestFreedMemory:
    def test_that_work_still_uses_is_a_race(self, bench: Bench) -> None:
        bench.compute()
        with pytest.raises(RaceError, match="cuMemFree of memory that add"):
            bench.y.free()
        bench.copy_in(bench.main)
        with pytest.raises(RaceError, match="cuMemFreeHost of memory that Memcpy HtoD"):
            bench.given.free()

    @pytest.mark.parametrize("use", ["kernel", "copy", "graph", "foreign"])
    def test_can_not_be_used(self, bench: Bench, use: str) -> None:
        with bench.main.capture() as graph:
            bench.compute()
        launch, address = bench.launch(bench.x, bench.y), bench.x.pointer
        bench.x.free()
        do: dict[str, Callable[[], None]] = {
            "kernel": lambda: launch.run(bench.main),
            "copy": lambda: bench.main.copy_in(address, bench.given, NBYTES),
            "graph": lambda: graph.launch(bench.main),
            "foreign": lambda: bench.fake.enqueue(bench.main.handle, "encoder", reads=[(address, 4)]),
        }
        with pytest.raises(UseAfterFreeError):
            do[use]()


class TestTheDefaultStream:
    @pytest.mark.parametrize("handle", [0, None, 1, 2])
    def test_is_refused_everywhere(self, bench: Bench, handle: int | None) -> None:
        for name, *args in (
            ("cuMemcpyDtoDAsync", bench.x.pointer, bench.y.pointer, 4, handle),
            ("cuMemsetD8Async", bench.x.pointer, 0, 4, handle),
            ("cuEventRecord", bench.event.handle, handle),
            ("cuStreamSynchronize", handle),
        ):
            with pytest.raises(DefaultStreamError):
                bench.cuda.call(name, *args)
        with pytest.raises(DefaultStreamError):
            bench.cuda.call("cuLaunchKernel", 1, 1, 1, 1, 1, 1, 1, 0, handle, 0, 0)
        with pytest.raises(DefaultStreamError):
            bench.fake.enqueue(handle, "encoder")  # type: ignore[arg-type]


class TestCopies:
    @pytest.mark.parametrize("way", ["in", "out"])
    def test_of_pageable_memory_are_refused(self, bench: Bench, way: str) -> None:
        pageable = np.zeros(COUNT, np.float32).ctypes.data
        args = {
            "in": ("cuMemcpyHtoDAsync", bench.x.pointer, pageable, NBYTES),
            "out": ("cuMemcpyDtoHAsync", pageable, bench.x.pointer, NBYTES),
        }[way]
        with pytest.raises(PageableMemoryError, match="256 bytes"):
            bench.cuda.call(*args, bench.main.handle)

    def test_beyond_a_block_are_refused(self, bench: Bench) -> None:
        with pytest.raises(OutOfBoundsError, match="leave the device block of 256 bytes"):
            bench.main.zero(bench.x.pointer + 1, NBYTES)


class TestKernels:
    @pytest.mark.parametrize("shift", [-4, NBYTES])
    def test_that_write_beside_their_block_are_caught(self, bench: Bench, shift: int) -> None:
        address = bench.y.pointer + shift

        def stray() -> None:
            floats(address, 1)[0] = 1

        bench.fake.enqueue(bench.main.handle, "stray", writes=[(bench.y.pointer, NBYTES)], action=stray)
        with pytest.raises(OutOfBoundsError, match="something wrote beside the device block"):
            bench.main.synchronize()

    def test_whose_module_was_unloaded_are_caught(self, bench: Bench) -> None:
        for number in list(bench.fake.driver.functions._modules):
            bench.cuda.call("cuModuleUnload", bench.cuda.driver.CUmodule(number))
        with pytest.raises(MisuseError, match="module was unloaded"):
            bench.compute()


class TestACapture:
    def test_can_not_wait_for_work_outside(self, bench: Bench) -> None:
        bench.copies.record(bench.event)
        with pytest.raises(CudaError, match="CUDA_ERROR_STREAM_CAPTURE_ISOLATION"), bench.main.capture():
            bench.main.wait(bench.event)


def test_pinned_memory_of_a_board_is_the_device_s_too() -> None:
    gpu = FakeGpu(device=ORIN_NANO, total_bytes=1000)
    cuda = opened(gpu)
    HostBuffer(cuda, 600)
    with pytest.raises(CudaError, match=r"\(2\)"):
        DeviceBuffer(cuda, 600)
