"""A GPU without a GPU: stands in for cuda.bindings.runtime and .driver, records every call.

`FakeGpu` computes in host memory, runs work as late and in as bad an order as CUDA allows, and raises
`Misuse` where a real GPU would give wrong numbers. Names, enumerations and handle types are those of
cuda-bindings.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runtime.cuda.fake_driver import FakeDriver
from runtime.cuda.fake_memory import DefaultStream, Memory, Range
from runtime.cuda.fake_runtime import FakeRuntime
from runtime.cuda.fake_status import (
    CAPTURE_INVALIDATED,
    CAPTURE_UNSUPPORTED,
    INVALID_HANDLE,
    NO_DRIVER,
    Capture,
    FakeDevice,
    Refused,
    real_driver,
    real_runtime,
)
from runtime.cuda.fake_streams import Job, Scheduler, Work

RUNTIME_VERSIONS = {"12.6": 12060, "12.9": 12090, "13": 13040}

# Where a call takes a stream.
STREAM_ARGUMENT = {
    "cudaStreamSynchronize": 0,
    "cudaStreamQuery": 0,
    "cudaStreamDestroy": 0,
    "cudaStreamWaitEvent": 0,
    "cudaStreamBeginCapture": 0,
    "cudaStreamEndCapture": 0,
    "cudaStreamIsCapturing": 0,
    "cudaMemcpyAsync": 4,
    "cudaMemsetAsync": 3,
    "cudaEventRecord": 1,
    "cudaGraphLaunch": 1,
    "cudaGraphUpload": 1,
    "cuLaunchKernel": 8,
}
# How many values follow the status.
OUTPUTS = {
    "cudaMemGetInfo": 2,
    **dict.fromkeys(
        (
            "cudaDriverGetVersion",
            "cudaRuntimeGetVersion",
            "cudaGetDeviceCount",
            "cudaGetDevice",
            "cudaGetDeviceProperties",
            "cudaDeviceGetAttribute",
            "cudaMalloc",
            "cudaHostAlloc",
            "cudaHostGetDevicePointer",
            "cudaStreamCreateWithFlags",
            "cudaStreamEndCapture",
            "cudaStreamIsCapturing",
            "cudaEventCreateWithFlags",
            "cudaEventElapsedTime",
            "cudaGraphInstantiate",
            "cudaGetErrorName",
            "cudaGetErrorString",
            "cuModuleLoadData",
            "cuModuleLoadDataEx",
            "cuModuleGetFunction",
        ),
        1,
    ),
}
ALLOCATIONS = ("cudaMalloc", "cudaHostAlloc")
HOST_WAITS = ("cudaStreamSynchronize", "cudaEventSynchronize", "cudaDeviceSynchronize")
# What a thread may not call while it captures.
NOT_IN_CAPTURE = {
    *ALLOCATIONS,
    *HOST_WAITS,
    "cudaFree",
    "cudaFreeHost",
    "cudaStreamQuery",
    "cudaEventQuery",
    "cuModuleLoadData",
    "cuModuleLoadDataEx",
}
# What works with no driver or a lost device.
ALWAYS = {"cudaRuntimeGetVersion", "cudaGetErrorName", "cudaGetErrorString"}


DEVICE = FakeDevice()


@dataclass(frozen=True)
class Call:
    """A call, or foreign work, as it came: ``stream`` its handle, if any, ``phase`` the latest mark."""

    name: str
    stream: int | None
    summary: str
    phase: str


class FakeGpu:
    """One driver with GPUs of one memory size.

    ``version``: of cuda-bindings, "12.6", "12.9" or "13". ``driver_version``: 0 for none. ``seed``: of the
    order in which work runs. ``kernels(name, grid, block, parameters_address)`` computes a launch;
    ``signatures`` gives each parameter's access, "in", "out", "inout" or "value".
    """

    def __init__(
        self,
        version: str = "12.9",
        device: FakeDevice | Sequence[FakeDevice] = DEVICE,
        driver_version: int | None = None,
        total_bytes: int = 8_000_000_000,
        seed: int = 0,
    ) -> None:
        self.runtime_version = RUNTIME_VERSIONS[version]
        self.driver_version = self.runtime_version if driver_version is None else driver_version
        self.devices = (device,) if isinstance(device, FakeDevice) else tuple(device)
        self.memory = Memory(total_bytes)
        self.scheduler = Scheduler(self.memory, seed)
        self.kernels: Callable[[str, tuple[int, ...], tuple[int, ...], int], None] | None = None
        self.signatures: Mapping[str, Sequence[str]] = {}
        self.log: list[Call] = []
        self.phase = ""
        self.captures: dict[int, Capture] = {}
        self._marks: dict[str, int] = {}
        self._faults: dict[str, tuple[int, int]] = {}
        self._lost = 0
        self._raises_without_driver = version == "12.6"
        self._lock = threading.RLock()
        self.here = threading.local()
        self.numbers = itertools.count(0x5000, 0x10)
        self.runtime = FakeModule(self, real_runtime, FakeRuntime(self), real_runtime.cudaError_t)
        self.driver = FakeModule(self, real_driver, FakeDriver(self), real_driver.CUresult)

    # What happened.

    def calls(self, name: str) -> list[Call]:
        return [call for call in self.log if call.name == name]

    def host_waits(self) -> list[Call]:
        """Calls that hold up the host."""
        return [call for call in self.log if call.name in HOST_WAITS]

    def allocations(self) -> list[Call]:
        """Of device and pinned memory."""
        return [call for call in self.log if call.name in ALLOCATIONS]

    def mark(self, phase: str) -> int:
        """Name what follows; the answer or the name goes into `since`."""
        self.phase = phase
        self._marks[phase] = len(self.log)
        return len(self.log)

    def since(self, mark: int | str) -> list[Call]:
        return self.log[self._marks[mark] if isinstance(mark, str) else mark :]

    # What is to happen.

    def fail(self, name: str, code: int, after: int = 0) -> None:
        """Let one call of ``name`` answer ``code``, once ``after`` more of them have passed."""
        self._faults[name] = (after, code)

    def lose_device(self, code: int = 999) -> None:
        """Let every call answer ``code`` from now on; work that has not run never will."""
        self._lost = code

    def divide(self, pointer: int, nbytes: int) -> None:
        """Let kernel pointers into these bytes stand for them alone, not for their whole block."""
        self.memory.divide(pointer, nbytes)

    def enqueue(
        self,
        stream_handle: int,
        name: str,
        reads: Iterable[tuple[int, int]] = (),
        writes: Iterable[tuple[int, int]] = (),
        action: Callable[[], None] | None = None,
    ) -> None:
        """Work of another library on a stream: ``action`` runs later; ranges are (address, bytes)."""
        with self._lock:
            stream = self.stream(stream_handle)
            self.log.append(Call(name, stream, "foreign work", self.phase))
            ranges = [tuple(Range(start, start + n) for start, n in of) for of in (reads, writes)]
            self.submit(stream, Job(name, ranges[0], ranges[1], action))

    # For the modules.

    def dispatch(self, name: str, function: Callable[..., Any], statuses: Any, args: tuple[Any, ...]) -> Any:
        """A call: recorded, perhaps refused, else done."""
        with self._lock:
            outputs = OUTPUTS.get(name, 0)
            position = STREAM_ARGUMENT.get(name)
            stream = None if position is None else int(args[position] or 0)
            self.log.append(Call(name, stream, ", ".join(map(_text, args)), self.phase))
            self._refuse_without_driver(name, driver=statuses is real_driver.CUresult)
            try:
                self._refuse(name)
                if position is not None:
                    self.stream(args[position])
                values = function(*args)
            except Refused as refusal:
                return (statuses(refusal.code), *[None] * outputs)
            if outputs == 0:
                return (statuses(0),)
            return (statuses(0), *(values if outputs > 1 else (values,)))

    def stream(self, handle: Any) -> int:
        """A usable stream's number."""
        number = 0 if handle is None else int(handle)
        if number in (0, 1, 2):  # default, legacy default, per-thread default
            raise DefaultStream(f"work on the default stream (handle {number})")
        if number not in self.runtime_state.streams:
            raise Refused(INVALID_HANDLE)
        return number

    def submit(self, stream: int, job: Job) -> Work | None:
        """Into the stream, or into the graph that it captures."""
        capture = self.captures.get(stream)
        if capture is None:
            return self.scheduler.submit(stream, job)
        if capture.invalid:
            raise Refused(CAPTURE_INVALIDATED)
        for touched in (*job.reads, *job.writes):
            self.memory.block(touched)
        capture.jobs.append(job)
        return None

    @property
    def runtime_state(self) -> FakeRuntime:
        return self.runtime.functions

    def _refuse_without_driver(self, name: str, driver: bool) -> None:
        if self.driver_version == 0 and name not in ALWAYS:
            if driver:
                raise RuntimeError("Failed to dlopen libcuda.so.1")
            if self._raises_without_driver:
                raise RuntimeError('Function "cuInit" not found')

    def _refuse(self, name: str) -> None:
        if name in ALWAYS:
            return
        after, code = self._faults.get(name, (-1, 0))
        if after == 0:
            del self._faults[name]
            raise Refused(code)
        if after > 0:
            self._faults[name] = (after - 1, code)
        if name == "cudaDriverGetVersion":
            return
        if self._lost:
            raise Refused(self._lost)
        if name.startswith("cuda") and self.driver_version // 1000 < self.runtime_version // 1000:
            raise Refused(NO_DRIVER)
        if name in NOT_IN_CAPTURE:
            self._refuse_in_capture()

    def _refuse_in_capture(self) -> None:
        modes = real_runtime.cudaStreamCaptureMode
        for capture in self.captures.values():
            mine = capture.thread == threading.get_ident()
            if capture.mode == modes.cudaStreamCaptureModeGlobal or (
                mine and capture.mode == modes.cudaStreamCaptureModeThreadLocal
            ):
                capture.invalid = True
                raise Refused(CAPTURE_UNSUPPORTED)


class FakeModule:
    """Has a real module's names: calls are the fake's, enumerations, handles and constants the real ones."""

    def __init__(self, gpu: FakeGpu, real: Any, functions: Any, statuses: Any) -> None:
        self.gpu = gpu
        self.functions = functions
        self._real = real
        self._statuses = statuses

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._real, name)
        if isinstance(value, int | type):
            return value
        function = getattr(type(self.functions), name, None)
        if function is None:
            raise AttributeError(f"the fake GPU does not model {name}")
        bound = getattr(self.functions, name)
        return lambda *args: self.gpu.dispatch(name, bound, self._statuses, args)


def _text(argument: Any) -> str:
    if isinstance(argument, bytes | bytearray):
        return f"{len(argument)} bytes"
    return hex(argument) if isinstance(argument, int) and argument > 0xFFFF else str(argument)
