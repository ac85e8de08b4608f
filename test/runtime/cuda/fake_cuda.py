"""A GPU without a GPU: stands in for cuda.bindings.driver, records every call.

`FakeGpu` computes in host memory, runs work as late and in as bad an order as CUDA allows, and raises
`MisuseError` where a real GPU would give wrong numbers. Names, enumerations and handle types are those of
cuda-bindings.
"""

from __future__ import annotations

import inspect
import itertools
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from runtime.cuda.fake_driver import FakeDriver
from runtime.cuda.fake_memory import DefaultStreamError, Memory, Range
from runtime.cuda.fake_status import (
    Capture,
    FakeDevice,
    RefusedError,
    Status,
    real_driver,
)
from runtime.cuda.fake_streams import Job, Scheduler, Work

BINDINGS_VERSIONS = {"12.9": 12090, "13": 13040}

COPIES = ("cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuMemcpyDtoDAsync", "cuMemcpy2DAsync")
ALLOCATIONS = ("cuMemAlloc", "cuMemHostAlloc")
HOST_WAITS = ("cuStreamSynchronize", "cuEventSynchronize")
# What a thread may not call while it captures.
NOT_IN_CAPTURE = {
    *ALLOCATIONS,
    *HOST_WAITS,
    "cuMemFree",
    "cuMemFreeHost",
    "cuEventQuery",
    "cuModuleLoadDataEx",
}
# What needs no context that was made current in its thread.
WITHOUT_CONTEXT = {
    *("cuInit", "cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName"),
    *("cuDeviceGetAttribute", "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease", "cuCtxSetCurrent"),
}
# What works with a lost device.
ALWAYS = {"cuDriverGetVersion"}


DEVICE = FakeDevice()


@dataclass(frozen=True)
class Call:
    """A call, or foreign work, as it came: ``stream`` its handle, if any, ``phase`` the latest mark."""

    name: str
    stream: int | None
    summary: str
    phase: str


class FakeGpu:
    """One driver with its GPUs, of which one is used at a time.

    ``version``: of cuda-bindings, "12.9" or "13".
    ``driver_version``: 0 for none. ``seed``: of the order in which work runs. ``kernels(name, grid, block,
    parameters_address)`` computes a launch; ``signatures`` gives each parameter's access, "in", "out",
    "inout" or "value".
    """

    def __init__(
        self,
        version: str = "12.9",
        device: FakeDevice | Sequence[FakeDevice] = DEVICE,
        driver_version: int | None = None,
        total_bytes: int = 8_000_000_000,
        seed: int = 0,
    ) -> None:
        self.bindings_version = BINDINGS_VERSIONS[version]
        self.driver_version = self.bindings_version if driver_version is None else driver_version
        self.devices = (device,) if isinstance(device, FakeDevice) else tuple(device)
        self.memory = Memory(total_bytes, 4_000_000_000)
        self.scheduler = Scheduler(self.memory, seed)
        self.kernels: Callable[[str, tuple[int, ...], tuple[int, ...], int], None] | None = None
        self.signatures: Mapping[str, Sequence[str]] = {}
        self.log: list[Call] = []
        self.phase = ""
        self.captures: dict[int, Capture] = {}
        self._marks: dict[str, int] = {}
        self._faults: dict[str, tuple[int, int]] = {}
        self._lost = 0
        self._faulty_work: dict[str, int] = {}
        self.scheduler.on_run = self._on_run
        self._lock = threading.RLock()
        self.here = threading.local()
        self.numbers = itertools.count(0x5000, 0x10)
        self.driver = FakeModule(self, real_driver, FakeDriver(self), {"CUDA_VERSION": self.bindings_version})

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

    def fail_work(self, name: str, code: int) -> None:
        """Let work of this name fail on the GPU. As with real ones the call that enqueues it succeeds, and
        whatever comes when the GPU gets there answers ``code``."""
        self._faulty_work[name] = code

    def take(self, owner: object, nbytes: int) -> bool:
        """Device memory that another library's ``owner`` holds as long as it lives; False where there is too
        little, or a stream of this thread is being captured."""
        capturing = any(capture.thread == threading.get_ident() for capture in self.captures.values())
        if capturing or nbytes > self.memory.free_bytes:
            return False
        if nbytes:
            weakref.finalize(owner, self.memory.release, self.memory.allocate("device", nbytes))
        return True

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

    @property
    def is_lost(self) -> bool:
        return bool(self._lost)

    # For the modules.

    def dispatch(self, name: str, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """A call: recorded, perhaps refused, else done."""
        with self._lock:
            position, outputs = _interface(getattr(type(self.driver.functions), name))
            stream = None if position is None else int(args[position] or 0)
            self.log.append(Call(name, stream, ", ".join(map(_text, args)), self.phase))
            if self.driver_version == 0:
                raise RuntimeError("Failed to dlopen libcuda.so.1")
            try:
                self._refuse(name)
                if name not in WITHOUT_CONTEXT:
                    self.current_device()
                if position is not None:
                    self.stream(args[position])
                values = function(*args)
                if self._lost and name in HOST_WAITS:
                    raise RefusedError(self._lost)
            except RefusedError as refusal:
                return (Status(refusal.code), *[None] * outputs)
            if outputs == 0:
                return (Status(0),)
            return (Status(0), *(values if outputs > 1 else (values,)))

    def stream(self, handle: Any) -> int:
        """A usable stream's number."""
        number = 0 if handle is None else int(handle)
        if number in (0, 1, 2):  # default, legacy default, per-thread default
            raise DefaultStreamError(f"work on the default stream (handle {number})")
        if number not in self.driver.functions.streams:
            raise RefusedError(Status.CUDA_ERROR_INVALID_HANDLE)
        return number

    def submit(self, stream: int, job: Job) -> Work | None:
        """Into the stream, or into the graph that it captures."""
        capture = self.captures.get(stream)
        if capture is None:
            return self.scheduler.submit(stream, job)
        if capture.invalid:
            raise RefusedError(Status.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
        for touched in (*job.reads, *job.writes):
            self.memory.block(touched)
        capture.jobs.append(job)
        return None

    def current_device(self) -> FakeDevice:
        """Of this thread."""
        if not hasattr(self.here, "device"):
            raise RefusedError(Status.CUDA_ERROR_INVALID_CONTEXT)
        return self.devices[self.here.device]

    def _on_run(self, name: str) -> None:
        if name in self._faulty_work:
            self._lost = self._faulty_work[name]

    def _refuse(self, name: str) -> None:
        if name in ALWAYS:
            return
        after, code = self._faults.get(name, (-1, 0))
        if after == 0:
            del self._faults[name]
            raise RefusedError(code)
        if after > 0:
            self._faults[name] = (after - 1, code)
        if self._lost:
            raise RefusedError(self._lost)
        if name in NOT_IN_CAPTURE:
            self._refuse_in_capture()

    def _refuse_in_capture(self) -> None:
        for capture in self.captures.values():
            if capture.thread == threading.get_ident():
                capture.invalid = True
                raise RefusedError(Status.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)


class FakeModule:
    """Has a real module's names: calls are the fake's, enumerations, handles and constants the real ones."""

    def __init__(self, gpu: FakeGpu, real: Any, functions: Any, constants: Mapping[str, int]) -> None:
        self.gpu = gpu
        self.functions = functions
        self._real = real
        self._constants = constants

    def __getattr__(self, name: str) -> Any:
        value = self._constants.get(name, getattr(self._real, name))
        if isinstance(value, int | type):
            return value
        function = getattr(type(self.functions), name, None)
        if function is None:
            raise AttributeError(f"the fake GPU does not model {name}")
        bound = getattr(self.functions, name)
        return lambda *args: self.gpu.dispatch(name, bound, args)


@cache
def _interface(function: Callable[..., Any]) -> tuple[int | None, int]:
    """Which argument of a call is its stream, and how many values follow the status."""
    names = list(inspect.signature(function).parameters)[1:]
    outputs = {"None": 0, "tuple[int, int]": 2}.get(function.__annotations__.get("return"), 1)
    return names.index("stream") if "stream" in names else None, outputs


def _text(argument: Any) -> str:
    if isinstance(argument, bytes | bytearray):
        return f"{len(argument)} bytes"
    return hex(argument) if isinstance(argument, int) and argument > 0xFFFF else str(argument)
