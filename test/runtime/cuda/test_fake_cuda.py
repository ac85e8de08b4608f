"""The fake GPU fails where a real one would give wrong numbers, and only there."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from runtime.cuda.fake_cuda import FakeGpu
from runtime.cuda.fake_memory import (
    DefaultStreamError,
    OutOfBoundsError,
    PageableMemoryError,
    RaceError,
    UseAfterFreeError,
)
from runtime.cuda.samples import COUNT, add_kernel, floats, opened

from efftam_ros.runtime.cuda.memory import DeviceBuffer, HostBuffer
from efftam_ros.runtime.cuda.stream import Event, Stream

NBYTES = 4 * COUNT


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
        arguments = self.x.pointer, self.y.pointer, COUNT, 1
        self.launch = add_kernel(self.cuda).bind((1, 1, 1), (COUNT, 1, 1), *arguments)
        with self.main.capture() as self.graph:
            self.compute()

    def copy_in(self, stream: Stream) -> None:
        stream.copy_in(self.x.pointer, self.given, NBYTES)

    def compute(self) -> None:
        self.launch.run(self.main)

    def copy_behind_the_event(self) -> None:
        self.copies.record(self.event)
        self.copy_in(self.copies)
        self.main.wait(self.event)

    def copy_pageable(self) -> None:
        pageable = np.zeros(COUNT, np.float32).ctypes.data
        self.cuda.call("cuMemcpyHtoDAsync", self.x.pointer, pageable, NBYTES, self.main.handle)

    def write_beside(self) -> None:
        """A kernel writes four bytes behind its block."""
        address = self.y.pointer + NBYTES

        def write() -> None:
            floats(address, 1)[0] = 1

        self.fake.enqueue(self.main.handle, "stray", writes=[(self.y.pointer, NBYTES)], action=write)


@pytest.fixture
def bench() -> Bench:
    return Bench()


Step = Callable[[Bench], object]
REFUSED: dict[str, tuple[Step, Step, type[Exception], str]] = {
    "race": (lambda b: b.copy_in(b.copies), Bench.compute, RaceError, r"HtoD .* and add .* no event or wait"),
    "early event": (Bench.copy_behind_the_event, Bench.compute, RaceError, "HtoD"),
    "graph": (lambda b: b.copy_in(b.copies), lambda b: b.graph.launch(b.main), RaceError, "add"),
    "free": (Bench.compute, lambda b: b.y.free(), RaceError, "cuMemFree of memory that add"),
    "use of freed": (lambda b: b.x.free(), lambda b: b.graph.launch(b.main), UseAfterFreeError, "freed"),
    "pageable": (lambda b: None, Bench.copy_pageable, PageableMemoryError, "256 bytes"),
    "beside": (Bench.write_beside, lambda b: b.main.synchronize(), OutOfBoundsError, "wrote beside"),
    "default stream": (lambda b: None, lambda b: b.fake.enqueue(0, "add"), DefaultStreamError, "handle 0"),
}
"""What is done first, what is refused then, and what is said of it."""


@pytest.mark.parametrize("case", REFUSED)
def test_misuse_is_refused(bench: Bench, case: str) -> None:
    first, then, error, said = REFUSED[case]
    first(bench)
    with pytest.raises(error, match=said):
        then(bench)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("waits", ["stream", "host", "host for all"])
def test_an_event_or_a_wait_orders_two_streams(seed: int, waits: str) -> None:
    bench = Bench(seed)
    bench.copy_in(bench.copies)
    bench.copies.record(bench.event)
    {
        "stream": lambda: bench.main.wait(bench.event),
        "host": bench.event.wait,
        "host for all": bench.copies.synchronize,
    }[waits]()
    bench.compute()
    bench.main.synchronize()
    assert (floats(bench.y.pointer) == 2).all()


@pytest.mark.parametrize("seed", range(8))
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
