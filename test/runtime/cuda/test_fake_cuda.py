"""The fake GPU fails where a real one would give wrong numbers, and only there."""

from __future__ import annotations

from collections.abc import Callable

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
from runtime.cuda.samples import COUNT, add_kernel, floats, opened

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
        self.large = DeviceBuffer(self.cuda, 2 * NBYTES)
        self.given.view(np.float32, (COUNT,))[:] = 1
        self.event = Event(self.cuda)
        self.kernel = add_kernel(self.cuda)
        with self.main.capture() as self.graph:
            self.compute()

    def launch(self, x: DeviceBuffer, y: DeviceBuffer) -> Launch:
        return self.kernel.bind((1, 1, 1), (COUNT, 1, 1), x.pointer, y.pointer, COUNT, 1)

    def copy_in(self, stream: Stream) -> None:
        stream.copy_in(self.x.pointer, self.given, NBYTES)

    def compute(self) -> None:
        self.launch(self.x, self.y).run(self.main)

    def zero_behind(self) -> None:
        """The second half of a block."""
        self.copies.zero(self.large.pointer + NBYTES, NBYTES)

    def early_event(self) -> None:
        self.copies.record(self.event)
        self.copy_in(self.copies)
        self.main.wait(self.event)

    def copy_pageable(self) -> None:
        pageable = np.zeros(COUNT, np.float32).ctypes.data
        self.cuda.call("cuMemcpyHtoDAsync", self.x.pointer, pageable, NBYTES, self.main.handle)

    def unload(self) -> None:
        for number in list(self.fake.driver.functions._modules):
            self.cuda.call("cuModuleUnload", self.cuda.driver.CUmodule(number))

    def stray(self, shift: int) -> None:
        """A kernel writes four bytes ``shift`` behind the start of its block."""
        address = self.y.pointer + shift

        def write() -> None:
            floats(address, 1)[0] = 1

        self.fake.enqueue(self.main.handle, "stray", writes=[(self.y.pointer, NBYTES)], action=write)


@pytest.fixture
def bench() -> Bench:
    return Bench()


Step = Callable[[Bench], object]
REFUSED: dict[str, tuple[Step, Step, type[Exception], str]] = {
    "race": (lambda b: b.copy_in(b.copies), Bench.compute, RaceError, r"HtoD .* and add .* no event or wait"),
    "early event": (Bench.early_event, Bench.compute, RaceError, "HtoD"),
    "shared block": (
        lambda b: b.zero_behind(),
        lambda b: b.launch(b.large, b.y).run(b.main),
        RaceError,
        "Memset",
    ),
    "graph": (lambda b: b.copy_in(b.copies), lambda b: b.graph.launch(b.main), RaceError, "add"),
    "free": (Bench.compute, lambda b: b.y.free(), RaceError, "cuMemFree of memory that add"),
    "free pinned": (
        lambda b: b.copy_in(b.main),
        lambda b: b.given.free(),
        RaceError,
        "cuMemFreeHost .* HtoD",
    ),
    "use of freed": (lambda b: b.x.free(), lambda b: b.graph.launch(b.main), UseAfterFreeError, "freed"),
    "pageable": (lambda b: None, Bench.copy_pageable, PageableMemoryError, "256 bytes"),
    "out of bounds": (
        lambda b: None,
        lambda b: b.main.zero(b.x.pointer + 1, NBYTES),
        OutOfBoundsError,
        "leave",
    ),
    "stray before": (lambda b: b.stray(-4), lambda b: b.main.synchronize(), OutOfBoundsError, "wrote beside"),
    "stray behind": (
        lambda b: b.stray(NBYTES),
        lambda b: b.main.synchronize(),
        OutOfBoundsError,
        "wrote beside",
    ),
    "no module": (Bench.unload, Bench.compute, MisuseError, "module was unloaded"),
}
"""What is done first, what is refused then, and what is said of it."""


@pytest.mark.parametrize("case", REFUSED)
def test_misuse_is_refused(bench: Bench, case: str) -> None:
    first, then, error, said = REFUSED[case]
    first(bench)
    with pytest.raises(error, match=said):
        then(bench)


@pytest.mark.parametrize("handle", [0, None, 1, 2])
def test_the_default_stream_is_refused_everywhere(bench: Bench, handle: int | None) -> None:
    for name, *args in (
        ("cuMemcpyDtoDAsync", bench.x.pointer, bench.y.pointer, 4, handle),
        ("cuMemsetD8Async", bench.x.pointer, 0, 4, handle),
        ("cuEventRecord", bench.event.handle, handle),
        ("cuStreamSynchronize", handle),
        ("cuLaunchKernel", 1, 1, 1, 1, 1, 1, 1, 0, handle, 0, 0),
    ):
        with pytest.raises(DefaultStreamError):
            bench.cuda.call(name, *args)
    with pytest.raises(DefaultStreamError):
        bench.fake.enqueue(handle, "encoder")  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", SEEDS)
def test_an_event_orders_two_streams(seed: int) -> None:
    bench = Bench(seed)
    bench.copy_in(bench.copies)
    bench.copies.record(bench.event)
    bench.main.wait(bench.event)
    bench.compute()
    bench.main.synchronize()
    assert (floats(bench.y.pointer) == 2).all()


@pytest.mark.parametrize("waited_for", ["copies", "event"])
def test_the_host_s_wait_orders_them_too(bench: Bench, waited_for: str) -> None:
    bench.copy_in(bench.copies)
    bench.copies.record(bench.event)
    bench.copies.synchronize() if waited_for == "copies" else bench.event.wait()
    bench.compute()


def test_what_only_reads_or_lies_apart_is_no_race(bench: Bench) -> None:
    bench.launch(bench.x, bench.y).run(bench.main)
    bench.launch(bench.x, bench.large).run(bench.copies)
    bench.fake.scheduler.wait_for_all()
    bench.fake.divide(bench.large.pointer, NBYTES)
    bench.zero_behind()
    bench.launch(bench.large, bench.y).run(bench.main)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_the_host_sees_before_it_waits_is_no_number(seed: int) -> None:
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
