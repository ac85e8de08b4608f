"""The calls of cuda.bindings.driver on the fake GPU: devices, memory, streams, events, graphs."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runtime.cuda.fake_kernels import FakeKernels
from runtime.cuda.fake_memory import Block, DefaultStreamError, MisuseError, PageableMemoryError, Range
from runtime.cuda.fake_status import (
    Capture,
    FakeDevice,
    RefusedError,
    Status,
    enumeration,
    known,
    real_driver,
)
from runtime.cuda.fake_streams import Job, Work

if TYPE_CHECKING:
    from runtime.cuda.fake_cuda import FakeGpu

CAPTURE_MODES = real_driver.CUstreamCaptureMode
HOST, DEVICE = real_driver.CUmemorytype.CU_MEMORYTYPE_HOST, real_driver.CUmemorytype.CU_MEMORYTYPE_DEVICE


@dataclass
class EventState:
    timing: bool
    work: Work | None = None
    captured: bool = False


class FakeDriver(FakeKernels):
    """Each call answers its values or raises RefusedError. As with the real driver, nearly all of them need a
    context that was made current in their thread."""

    def __init__(self, gpu: FakeGpu) -> None:
        super().__init__(gpu)
        self._gpu = gpu
        self.streams: set[int] = set()
        self._events: dict[int, EventState] = {}
        self._graphs: dict[int, list[Job]] = {}
        self._executables: dict[int, list[Job]] = {}
        self._contexts: dict[int, int] = {}
        self.retained: Counter[int] = Counter()
        self.events_recorded = 0

    # Errors, versions, devices.

    def cuInit(self, flags: int) -> None:
        if not self._gpu.devices:
            raise RefusedError(Status.CUDA_ERROR_NO_DEVICE)

    def cuDriverGetVersion(self) -> int:
        return self._gpu.driver_version

    def cuDeviceGetCount(self) -> int:
        return len(self._gpu.devices)

    def cuDeviceGet(self, index: int) -> Any:
        if not 0 <= index < len(self._gpu.devices):
            raise RefusedError(Status.CUDA_ERROR_INVALID_DEVICE)
        return real_driver.CUdevice(index)

    def cuDeviceGetName(self, room: int, device: Any) -> bytes:
        return self._of(device).name.encode()[: room - 1].ljust(room, b"\0")

    def cuDeviceGetAttribute(self, attribute: Any, device: Any) -> int:
        attributes = real_driver.CUdevice_attribute
        of = self._of(device)
        known = {
            attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: of.compute_capability[0],
            attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: of.compute_capability[1],
            attributes.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: of.multiprocessors,
            attributes.CU_DEVICE_ATTRIBUTE_INTEGRATED: int(of.integrated),
        }
        return known[enumeration(attribute, attributes)]

    def cuDevicePrimaryCtxRetain(self, device: Any) -> Any:
        self._of(device)
        number = 0xC000 + 0x10 * int(device)  # one for all that retain it
        self._contexts[number] = int(device)
        self.retained[int(device)] += 1
        return real_driver.CUcontext(number)

    def cuDevicePrimaryCtxRelease(self, device: Any) -> None:
        """The last release destroys the context, with all that is in it."""
        self._of(device)
        if not self.retained[int(device)]:
            raise RefusedError(Status.CUDA_ERROR_INVALID_CONTEXT)
        self.retained[int(device)] -= 1
        if not self.retained[int(device)]:
            if self.held and not self._gpu.is_lost:
                raise MisuseError("a context was destroyed with streams, events or graphs in it")
            self._contexts.pop(0xC000 + 0x10 * int(device))
            self._gpu.here = threading.local()

    def cuCtxSetCurrent(self, context: Any) -> None:
        self._gpu.here.device = known(self._contexts, context)

    # Memory.

    def cuMemGetInfo(self) -> tuple[int, int]:
        device, memory = self._gpu.current_device(), self._gpu.memory
        total = device.total_bytes or memory.total_bytes
        return min(memory.free_bytes, total), total

    def cuMemAlloc(self, nbytes: int) -> Any:
        return real_driver.CUdeviceptr(self._allocate("device", nbytes).start)

    def cuMemFree(self, pointer: Any) -> None:
        self._release("cuMemFree", "device", int(pointer))

    def cuMemHostAlloc(self, nbytes: int, flags: int) -> int:
        if flags & ~7:
            raise RefusedError(Status.CUDA_ERROR_INVALID_VALUE)
        return self._allocate("pinned", nbytes).start

    def cuMemFreeHost(self, pointer: int) -> None:
        self._release("cuMemFreeHost", "pinned", pointer)

    def cuMemHostGetDevicePointer(self, pointer: int, flags: int) -> Any:
        block = self._gpu.memory.find(pointer)
        if flags or block is None or not block.alive or block.kind != "pinned":
            raise RefusedError(Status.CUDA_ERROR_INVALID_VALUE)
        return real_driver.CUdeviceptr(pointer)

    def cuMemcpyHtoDAsync(self, target: Any, source: int, nbytes: int, stream: Any) -> None:
        self._copy("HtoD", int(target), source, nbytes, stream, ("device", "pinned"))

    def cuMemcpyDtoHAsync(self, target: int, source: Any, nbytes: int, stream: Any) -> None:
        self._copy("DtoH", target, int(source), nbytes, stream, ("pinned", "device"))

    def cuMemcpyDtoDAsync(self, target: Any, source: Any, nbytes: int, stream: Any) -> None:
        self._copy("DtoD", int(target), int(source), nbytes, stream, ("device", "device"))

    def cuMemcpy2DAsync(self, described: Any, stream: Any) -> None:
        """From pinned memory to the device alone, as the documentation of CUDA_MEMCPY2D has it: rows begin
        ``Y`` pitches and ``XInBytes`` bytes behind the base addresses, and lie within their pitch."""
        if not isinstance(described, real_driver.CUDA_MEMCPY2D):
            raise TypeError("cuMemcpy2DAsync takes a CUDA_MEMCPY2D")
        if (described.srcMemoryType, described.dstMemoryType) != (HOST, DEVICE):
            raise RefusedError(Status.CUDA_ERROR_INVALID_VALUE)
        width, height = int(described.WidthInBytes), int(described.Height)
        if min(width, height) < 1:
            raise RefusedError(Status.CUDA_ERROR_INVALID_VALUE)
        sides = []
        for base, row, column, pitch, kind in (
            (described.dstDevice, described.dstY, described.dstXInBytes, described.dstPitch, "device"),
            (described.srcHost, described.srcY, described.srcXInBytes, described.srcPitch, "pinned"),
        ):
            if not width + int(column) <= int(pitch):
                raise RefusedError(Status.CUDA_ERROR_INVALID_VALUE)
            start = int(base) + int(row) * int(pitch) + int(column)
            part = Range.part(start, width, int(pitch), height)
            self._side(part.start, part.stop - part.start, kind)
            sides.append(part)
        to, source = sides
        to_block, from_block = (self._gpu.memory.block(side) for side in sides)

        def run() -> None:
            to_block.bytes_of(to)[:] = from_block.bytes_of(source)

        job = Job("Memcpy2D HtoD", (source,), (to,), run, fills=True, nbytes=width * height)
        self._gpu.submit(int(stream), job)

    def cuMemsetD8Async(self, pointer: Any, value: int, nbytes: int, stream: Any) -> None:
        to = self._side(int(pointer), nbytes, "device")
        block = self._gpu.memory.block(to)

        def run() -> None:
            block.bytes_of(to)[:] = value

        self._gpu.submit(int(stream), Job("Memset", (), (to,), run, fills=True))

    # Streams.

    def cuStreamCreate(self, flags: int) -> Any:
        if flags != int(real_driver.CUstream_flags.CU_STREAM_NON_BLOCKING):
            raise DefaultStreamError("a stream without CU_STREAM_NON_BLOCKING waits for the default stream")
        number = next(self._gpu.numbers)
        self.streams.add(number)
        self._gpu.scheduler.open(number)
        return real_driver.CUstream(number)

    def cuStreamDestroy(self, stream: Any) -> None:
        self.streams.discard(int(stream))

    def cuStreamSynchronize(self, stream: Any) -> None:
        self._gpu.scheduler.wait_for_stream(int(stream))

    def cuStreamWaitEvent(self, stream: Any, event: Any, flags: int) -> None:
        state = self._event(event)
        capturing = int(stream) in self._gpu.captures
        if capturing != state.captured:
            raise RefusedError(Status.CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
        if state.work is not None and not capturing:
            self._gpu.scheduler.let_wait(int(stream), state.work)

    # Events.

    def cuEventCreate(self, flags: int) -> Any:
        number = next(self._gpu.numbers)
        timing = not flags & int(real_driver.CUevent_flags.CU_EVENT_DISABLE_TIMING)
        self._events[number] = EventState(timing)
        return real_driver.CUevent(number)

    def cuEventDestroy(self, event: Any) -> None:
        self._event(event)
        del self._events[int(event)]

    def cuEventRecord(self, event: Any, stream: Any) -> None:
        state = self._event(event)
        state.work = self._gpu.submit(int(stream), Job("event"))
        state.captured = state.work is None
        self.events_recorded += not state.captured

    def cuEventRecordWithFlags(self, event: Any, stream: Any, flags: int) -> None:
        """With CU_EVENT_RECORD_EXTERNAL, in a capture: recorded by every launch of the graph."""
        external = int(real_driver.CUevent_record_flags.CU_EVENT_RECORD_EXTERNAL)
        if flags != external or int(stream) not in self._gpu.captures:
            raise RefusedError(Status.CUDA_ERROR_INVALID_VALUE)
        self._gpu.submit(int(stream), Job("event", event=self._event(event)))

    def cuEventSynchronize(self, event: Any) -> None:
        work = self._recorded(event)
        if work is not None:
            self._gpu.scheduler.wait(work)

    def cuEventQuery(self, event: Any) -> None:
        work = self._recorded(event)
        if work is not None and not self._gpu.scheduler.ask(work):
            raise RefusedError(Status.CUDA_ERROR_NOT_READY)

    def cuEventElapsedTime(self, start: Any, end: Any) -> float:
        states = [self._event(event) for event in (start, end)]
        if not all(state.timing and state.work for state in states):
            raise RefusedError(Status.CUDA_ERROR_INVALID_HANDLE)
        first, last = (state.work for state in states)
        if not (first.done and last.done):
            raise RefusedError(Status.CUDA_ERROR_NOT_READY)
        return last.finished_at_ms - first.finished_at_ms

    # Graphs.

    def cuStreamBeginCapture(self, stream: Any, mode: Any) -> None:
        if int(stream) in self._gpu.captures:
            raise RefusedError(Status.CUDA_ERROR_INVALID_VALUE)
        if enumeration(mode, CAPTURE_MODES) != CAPTURE_MODES.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL:
            raise MisuseError("a capture that forbids other threads to allocate, or lets this one do it")
        self._gpu.captures[int(stream)] = Capture(threading.get_ident(), [])

    def cuStreamEndCapture(self, stream: Any) -> Any:
        capture = self._gpu.captures.get(int(stream))
        if capture is None:
            raise RefusedError(Status.CUDA_ERROR_STREAM_CAPTURE_UNMATCHED)
        if capture.thread != threading.get_ident():
            raise RefusedError(Status.CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD)
        del self._gpu.captures[int(stream)]
        if capture.invalid:
            raise RefusedError(Status.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
        number = next(self._gpu.numbers)
        self._graphs[number] = capture.jobs
        return real_driver.CUgraph(number)

    def cuGraphInstantiate(self, graph: Any, flags: int) -> Any:
        number = next(self._gpu.numbers)
        self._executables[number] = known(self._graphs, graph)
        return real_driver.CUgraphExec(number)

    def cuGraphUpload(self, executable: Any, stream: Any) -> None:
        known(self._executables, executable)

    def cuGraphLaunch(self, executable: Any, stream: Any) -> None:
        jobs = known(self._executables, executable)
        if int(stream) in self._gpu.captures:
            raise RefusedError(Status.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
        for job in jobs:
            work = self._gpu.submit(int(stream), job)
            if job.event is not None:
                job.event.work, job.event.captured = work, False
                self.events_recorded += 1

    def cuGraphDestroy(self, graph: Any) -> None:
        known(self._graphs, graph)
        del self._graphs[int(graph)]

    def cuGraphExecDestroy(self, executable: Any) -> None:
        known(self._executables, executable)
        del self._executables[int(executable)]

    @property
    def held(self) -> int:
        """Streams, events and graphs that were not given back."""
        holders: Sequence[Any] = (self.streams, self._events, self._graphs, self._executables)
        return sum(map(len, holders))

    def _of(self, device: Any) -> FakeDevice:
        if not 0 <= int(device) < len(self._gpu.devices):
            raise RefusedError(Status.CUDA_ERROR_INVALID_DEVICE)
        return self._gpu.devices[int(device)]

    def _allocate(self, kind: str, nbytes: int) -> Block:
        memory = self._gpu.memory
        if nbytes > memory.free(kind):
            raise RefusedError(Status.CUDA_ERROR_OUT_OF_MEMORY)
        return memory.allocate(kind, nbytes)

    def _release(self, call: str, kind: str, pointer: int) -> None:
        block = self._gpu.memory.find(pointer)
        if block is None or not block.alive or block.start != pointer or block.kind != kind:
            raise RefusedError(Status.CUDA_ERROR_INVALID_VALUE)
        self._gpu.scheduler.refuse_release(block.range, call)
        self._gpu.memory.release(block)

    def _copy(
        self, way: str, target: int, source: int, nbytes: int, stream: Any, kinds: tuple[str, str]
    ) -> None:
        to, source_range = self._side(target, nbytes, kinds[0]), self._side(source, nbytes, kinds[1])
        to_block, from_block = self._gpu.memory.block(to), self._gpu.memory.block(source_range)

        def run() -> None:
            to_block.bytes_of(to)[:] = from_block.bytes_of(source_range)

        job = Job(f"Memcpy {way}", (source_range,), (to,), run, fills=True, nbytes=nbytes)
        self._gpu.submit(int(stream), job)

    def _side(self, pointer: int, nbytes: int, kind: str) -> Range:
        """One side of a copy, which must lie in memory of this kind."""
        block = self._gpu.memory.find(pointer)
        if block is None and kind == "pinned":
            raise PageableMemoryError(
                f"a copy of {nbytes} bytes from or to {pointer:#x}, which is not pinned"
            )
        wanted = Range(pointer, pointer + nbytes)
        if self._gpu.memory.block(wanted).kind != kind:
            raise RefusedError(Status.CUDA_ERROR_INVALID_VALUE)
        return wanted

    def _event(self, event: Any) -> EventState:
        return known(self._events, event)

    def _recorded(self, event: Any) -> Work | None:
        state = self._event(event)
        if state.captured:
            raise RefusedError(Status.CUDA_ERROR_CAPTURED_EVENT)
        return state.work
