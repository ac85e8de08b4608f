"""The calls of cuda.bindings.runtime on the fake GPU."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from runtime.cuda.fake_memory import DefaultStream, PageableMemory, Range
from runtime.cuda.fake_status import (
    CAPTURE_INVALIDATED,
    CAPTURE_ISOLATION,
    CAPTURE_UNMATCHED,
    CAPTURE_UNSUPPORTED,
    CAPTURED_EVENT,
    INVALID_DEVICE,
    INVALID_HANDLE,
    INVALID_VALUE,
    NO_DEVICE,
    NOT_READY,
    OUT_OF_MEMORY,
    Capture,
    FakeDevice,
    Refused,
    enumeration,
    known,
    real_runtime,
)
from runtime.cuda.fake_streams import Job, Work

if TYPE_CHECKING:
    from runtime.cuda.fake_cuda import FakeGpu


@dataclass
class EventState:
    timing: bool
    work: Work | None = None
    captured: bool = False


class FakeRuntime:
    """The calls of cuda.bindings.runtime; each answers its values or raises Refused."""

    def __init__(self, gpu: FakeGpu) -> None:
        self._gpu = gpu
        self.streams: set[int] = set()
        self._events: dict[int, EventState] = {}
        self._graphs: dict[int, list[Job]] = {}
        self._executables: dict[int, list[Job]] = {}

    # Errors, versions, devices.

    def cudaGetErrorName(self, error: Any) -> bytes:
        return str(real_runtime.cudaError_t(int(error)).name).encode()

    def cudaGetErrorString(self, error: Any) -> bytes:
        return b"said by the fake GPU"

    def cudaRuntimeGetVersion(self) -> int:
        return self._gpu.runtime_version

    def cudaDriverGetVersion(self) -> int:
        return self._gpu.driver_version

    def cudaGetDeviceCount(self) -> int:
        if not self._gpu.devices:
            raise Refused(NO_DEVICE)
        return len(self._gpu.devices)

    def cudaSetDevice(self, index: int) -> None:
        self._device(index)
        self._gpu.here.device = index

    def cudaGetDevice(self) -> int:
        return self._current()

    def cudaGetDeviceProperties(self, index: int) -> SimpleNamespace:
        device = self._device(index)
        major, minor = device.compute_capability
        return SimpleNamespace(
            name=device.name.encode().ljust(256, b"\0"),
            major=major,
            minor=minor,
            totalGlobalMem=self._gpu.memory.total_bytes,
            integrated=int(device.integrated),
        )

    def cudaDeviceGetAttribute(self, attribute: Any, index: int) -> int:
        attributes = real_runtime.cudaDeviceAttr
        device = self._device(index)
        known = {
            attributes.cudaDevAttrComputeCapabilityMajor: device.compute_capability[0],
            attributes.cudaDevAttrComputeCapabilityMinor: device.compute_capability[1],
            attributes.cudaDevAttrIntegrated: int(device.integrated),
        }
        return known[enumeration(attribute, attributes)]

    def cudaMemGetInfo(self) -> tuple[int, int]:
        self._current()
        return self._gpu.memory.free_bytes, self._gpu.memory.total_bytes

    def cudaDeviceSynchronize(self) -> None:
        self._current()
        self._gpu.scheduler.wait_for_all()

    # Memory.

    def cudaMalloc(self, nbytes: int) -> int:
        self._current()
        if nbytes > self._gpu.memory.free_bytes:
            raise Refused(OUT_OF_MEMORY)
        return self._gpu.memory.allocate("device", nbytes).start

    def cudaFree(self, pointer: int) -> None:
        self._current()
        if pointer:
            self._release("cudaFree", "device", pointer)

    def cudaHostAlloc(self, nbytes: int, flags: int) -> int:
        self._current()
        if flags & ~7:
            raise Refused(INVALID_VALUE)
        return self._gpu.memory.allocate("pinned", nbytes).start

    def cudaFreeHost(self, pointer: int) -> None:
        self._release("cudaFreeHost", "pinned", pointer)

    def cudaHostGetDevicePointer(self, pointer: int, flags: int) -> int:
        block = self._gpu.memory.find(pointer)
        if flags or block is None or not block.alive or block.kind != "pinned":
            raise Refused(INVALID_VALUE)
        return pointer

    def cudaMemcpyAsync(self, target: int, source: int, nbytes: int, kind: Any, stream: Any) -> None:
        kinds = real_runtime.cudaMemcpyKind
        sides = {
            kinds.cudaMemcpyHostToDevice: ("device", "pinned"),
            kinds.cudaMemcpyDeviceToHost: ("pinned", "device"),
            kinds.cudaMemcpyDeviceToDevice: ("device", "device"),
        }
        to_kind, from_kind = sides[enumeration(kind, kinds)]
        to, source_range = self._side(target, nbytes, to_kind), self._side(source, nbytes, from_kind)
        to_block, from_block = self._gpu.memory.block(to), self._gpu.memory.block(source_range)

        def run() -> None:
            to_block.bytes_of(to)[:] = from_block.bytes_of(source_range)

        name = f"{kind.name.removeprefix('cuda')} of {nbytes} bytes"
        self._gpu.submit(int(stream), Job(name, (source_range,), (to,), run, fills=True))

    def cudaMemsetAsync(self, pointer: int, value: int, nbytes: int, stream: Any) -> None:
        to = self._side(pointer, nbytes, "device")
        block = self._gpu.memory.block(to)

        def run() -> None:
            block.bytes_of(to)[:] = value

        self._gpu.submit(int(stream), Job(f"Memset of {nbytes} bytes", (), (to,), run, fills=True))

    def cudaMemcpy(self, *_: Any) -> None:
        raise DefaultStream("cudaMemcpy works on the default stream, and waits")

    def cudaMemset(self, *_: Any) -> None:
        raise DefaultStream("cudaMemset works on the default stream")

    # Streams.

    def cudaStreamCreateWithFlags(self, flags: int) -> Any:
        self._current()
        if flags != real_runtime.cudaStreamNonBlocking:
            raise DefaultStream("a stream without cudaStreamNonBlocking waits for the default stream")
        number = next(self._gpu.numbers)
        self.streams.add(number)
        self._gpu.scheduler.open(number)
        return real_runtime.cudaStream_t(number)

    def cudaStreamDestroy(self, stream: Any) -> None:
        self.streams.discard(int(stream))

    def cudaStreamSynchronize(self, stream: Any) -> None:
        self._gpu.scheduler.wait_for_stream(int(stream))

    def cudaStreamQuery(self, stream: Any) -> None:
        if not self._gpu.scheduler.stream_is_done(int(stream)):
            raise Refused(NOT_READY)

    def cudaStreamWaitEvent(self, stream: Any, event: Any, flags: int) -> None:
        state = self._event(event)
        capturing = int(stream) in self._gpu.captures
        if capturing != state.captured:
            raise Refused(CAPTURE_ISOLATION)
        if state.work is not None and not capturing:
            self._gpu.scheduler.let_wait(int(stream), state.work)

    # Events.

    def cudaEventCreateWithFlags(self, flags: int) -> Any:
        self._current()
        number = next(self._gpu.numbers)
        self._events[number] = EventState(timing=not flags & real_runtime.cudaEventDisableTiming)
        return real_runtime.cudaEvent_t(number)

    def cudaEventDestroy(self, event: Any) -> None:
        self._event(event)
        del self._events[int(event)]

    def cudaEventRecord(self, event: Any, stream: Any) -> None:
        state = self._event(event)
        state.work = self._gpu.submit(int(stream), Job("event"))
        state.captured = state.work is None

    def cudaEventSynchronize(self, event: Any) -> None:
        work = self._recorded(event)
        if work is not None:
            self._gpu.scheduler.wait(work)

    def cudaEventQuery(self, event: Any) -> None:
        work = self._recorded(event)
        if work is not None and not self._gpu.scheduler.ask(work):
            raise Refused(NOT_READY)

    def cudaEventElapsedTime(self, start: Any, end: Any) -> float:
        states = [self._event(event) for event in (start, end)]
        if not all(state.timing and state.work for state in states):
            raise Refused(INVALID_HANDLE)
        first, last = (state.work for state in states)
        if not (first.done and last.done):
            raise Refused(NOT_READY)
        return last.finished_at_ms - first.finished_at_ms

    # Graphs.

    def cudaStreamBeginCapture(self, stream: Any, mode: Any) -> None:
        if int(stream) in self._gpu.captures:
            raise Refused(INVALID_VALUE)
        mode = enumeration(mode, real_runtime.cudaStreamCaptureMode)
        self._gpu.captures[int(stream)] = Capture(mode, threading.get_ident(), [])

    def cudaStreamEndCapture(self, stream: Any) -> Any:
        capture = self._gpu.captures.pop(int(stream), None)
        if capture is None:
            raise Refused(CAPTURE_UNMATCHED)
        if capture.invalid:
            raise Refused(CAPTURE_INVALIDATED)
        number = next(self._gpu.numbers)
        self._graphs[number] = capture.jobs
        return real_runtime.cudaGraph_t(number)

    def cudaStreamIsCapturing(self, stream: Any) -> Any:
        statuses = real_runtime.cudaStreamCaptureStatus
        capture = self._gpu.captures.get(int(stream))
        if capture is None:
            return statuses.cudaStreamCaptureStatusNone
        if capture.invalid:
            return statuses.cudaStreamCaptureStatusInvalidated
        return statuses.cudaStreamCaptureStatusActive

    def cudaGraphInstantiate(self, graph: Any, flags: int) -> Any:
        number = next(self._gpu.numbers)
        self._executables[number] = known(self._graphs, graph)
        return real_runtime.cudaGraphExec_t(number)

    def cudaGraphUpload(self, executable: Any, stream: Any) -> None:
        known(self._executables, executable)

    def cudaGraphLaunch(self, executable: Any, stream: Any) -> None:
        jobs = known(self._executables, executable)
        if int(stream) in self._gpu.captures:
            raise Refused(CAPTURE_UNSUPPORTED)
        for job in jobs:
            self._gpu.submit(int(stream), job)

    def cudaGraphDestroy(self, graph: Any) -> None:
        known(self._graphs, graph)
        del self._graphs[int(graph)]

    def cudaGraphExecDestroy(self, executable: Any) -> None:
        known(self._executables, executable)
        del self._executables[int(executable)]

    @property
    def held(self) -> int:
        """Streams, events and graphs that were not given back."""
        return sum(map(len, (self.streams, self._events, self._graphs, self._executables)))

    def _device(self, index: int) -> FakeDevice:
        if not 0 <= index < len(self._gpu.devices):
            raise Refused(INVALID_DEVICE)
        return self._gpu.devices[index]

    def _current(self) -> int:
        """The runtime makes device 0 current where none was chosen."""
        if not hasattr(self._gpu.here, "device"):
            self.cudaSetDevice(0)
        return int(self._gpu.here.device)

    def _release(self, call: str, kind: str, pointer: int) -> None:
        block = self._gpu.memory.find(pointer)
        if block is None or not block.alive or block.start != pointer or block.kind != kind:
            raise Refused(INVALID_VALUE)
        self._gpu.scheduler.refuse_release(block.range, call)
        self._gpu.memory.release(block)

    def _side(self, pointer: int, nbytes: int, kind: str) -> Range:
        """One side of a copy, which must lie in memory of this kind."""
        block = self._gpu.memory.find(pointer)
        if block is None and kind == "pinned":
            raise PageableMemory(f"a copy of {nbytes} bytes from or to {pointer:#x}, which is not pinned")
        wanted = Range(pointer, pointer + nbytes)
        if self._gpu.memory.block(wanted).kind != kind:
            raise Refused(INVALID_VALUE)
        return wanted

    def _event(self, event: Any) -> EventState:
        return known(self._events, event)

    def _recorded(self, event: Any) -> Work | None:
        state = self._event(event)
        if state.captured:
            raise Refused(CAPTURED_EVENT)
        return state.work
