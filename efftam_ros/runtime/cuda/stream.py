"""CUDA streams, events and captured graphs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from efftam_ros.runtime.cuda.api import Cuda, number_of
from efftam_ros.runtime.cuda.memory import HostBuffer, check_range

CUDA_GRAPH = "cuda graph"
"""Value of `device.graph.Binding.launch` for work that is launched as one captured CUDA graph."""


class Stream:
    """A CUDA stream that does not synchronise with the default stream.

    All methods may raise CudaError, also for work that was enqueued earlier and has failed since.
    """

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self.is_capturing = False
        self._stream: Any = cuda.call(
            "cuStreamCreate", int(cuda.driver.CUstream_flags.CU_STREAM_NON_BLOCKING)
        )

    @property
    def cuda(self) -> Cuda:
        """The CUDA driver with which the stream was made."""
        return self._cuda

    @property
    def handle(self) -> int:
        """The address of the CUstream, which is also a cudaStream_t. Raises ValueError after `close`."""
        return number_of(self.opened)

    @property
    def opened(self) -> Any:
        """The CUstream of cuda-bindings. Raises ValueError after `close`."""
        if self._stream is None:
            raise ValueError("this stream was closed; make a new one")
        return self._stream

    def copy_in(self, device_pointer: int, host: HostBuffer, nbytes: int, offset: int = 0) -> None:
        """Enqueue a copy of ``nbytes`` from byte ``offset`` of a host buffer to the GPU.

        The bytes in the host buffer must not change until the copy is done.
        """
        source = self._pinned(host, nbytes, offset)
        self._cuda.call("cuMemcpyHtoDAsync", device_pointer, source, nbytes, self.opened)

    def copy_part_in(
        self, device_pointer: int, host: HostBuffer, pitch: int, rows: slice, columns: slice
    ) -> None:
        """Enqueue a copy of a part of a matrix of bytes, its ``rows`` and ``columns``, to the GPU.

        On the GPU the matrix begins at ``device_pointer``, in the host buffer at byte 0. In both, the
        distance from one row to the next is ``pitch`` bytes. The bytes in the host buffer must not change
        until the copy is done. Raises ValueError if the part is empty or exceeds the matrix or the buffer.
        """
        width, height = columns.stop - columns.start, rows.stop - rows.start
        if min(width, height) < 1 or rows.start < 0 or columns.start < 0 or columns.stop > pitch:
            raise ValueError(
                f"rows {rows} and bytes {columns} lie outside the matrix, whose rows have {pitch} bytes;"
                " give a part of the matrix"
            )
        end = (rows.stop - 1) * pitch + columns.stop
        part = self._part
        part.srcHost, part.dstDevice = self._pinned(host, end, 0), device_pointer
        part.srcPitch = part.dstPitch = pitch
        part.srcXInBytes = part.dstXInBytes = columns.start
        part.srcY = part.dstY = rows.start
        part.WidthInBytes, part.Height = width, height
        self._cuda.call("cuMemcpy2DAsync", part, self.opened)

    def copy_out(self, host: HostBuffer, device_pointer: int, nbytes: int, offset: int = 0) -> None:
        """Enqueue a copy of ``nbytes`` from the GPU to byte ``offset`` of a host buffer.

        The bytes are valid after the host has waited for an event that was recorded later.
        """
        target = self._pinned(host, nbytes, offset)
        self._cuda.call("cuMemcpyDtoHAsync", target, device_pointer, nbytes, self.opened)

    def copy(self, to_pointer: int, from_pointer: int, nbytes: int) -> None:
        """Enqueue a copy of ``nbytes`` from one device address to another."""
        self._cuda.call("cuMemcpyDtoDAsync", to_pointer, from_pointer, nbytes, self.opened)

    def zero(self, pointer: int, nbytes: int) -> None:
        """Enqueue setting ``nbytes`` from a device address on to 0."""
        self._cuda.call("cuMemsetD8Async", pointer, 0, nbytes, self.opened)

    def record(self, event: Event) -> None:
        """Record ``event`` after all work enqueued so far.

        In a capture, the event becomes a part of the graph, and every launch of the graph records it.
        """
        if self.is_capturing:
            flag = int(self._cuda.driver.CUevent_record_flags.CU_EVENT_RECORD_EXTERNAL)
            self._cuda.call("cuEventRecordWithFlags", event.handle, self.opened, flag)
        else:
            self._cuda.call("cuEventRecord", event.handle, self.opened)

    def wait(self, event: Event) -> None:
        """Make work that is enqueued later wait for the position at which ``event`` was recorded last.

        The host does not wait.
        """
        self._cuda.call("cuStreamWaitEvent", self.opened, event.handle, 0)

    def synchronize(self) -> None:
        """Wait on the host until all enqueued work is done."""
        self._cuda.call("cuStreamSynchronize", self.opened)

    @contextmanager
    def capture(self) -> Iterator[CapturedGraph]:
        """Capture as a CUDA graph the work that a ``with`` block enqueues.

        The graph can be launched after the block. The block must not allocate or free memory, wait, or load
        kernels. If it raises an exception, the capture ends and there is no graph.
        """
        cuda, stream = self._cuda, self.opened
        # In this mode other threads, and the libraries in them, may allocate memory during the capture.
        mode = cuda.driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        cuda.call("cuStreamBeginCapture", stream, mode)
        captured = CapturedGraph(cuda)
        self.is_capturing = True
        try:
            yield captured
        except BaseException:
            # The status of this call is not checked, because the exception of the ``with`` block, which is
            # raised again below, states the cause better.
            _, graph = cuda.driver.cuStreamEndCapture(stream)
            if graph is not None and number_of(graph):
                cuda.driver.cuGraphDestroy(graph)
            raise
        finally:
            self.is_capturing = False
        captured.instantiate(cuda.call("cuStreamEndCapture", stream), self)

    def close(self) -> None:
        """Destroy the stream. Work that was enqueued before still runs. Can be called twice."""
        if self._stream is not None:
            stream, self._stream = self._stream, None
            self._cuda.release("cuStreamDestroy", stream)

    @cached_property
    def _part(self) -> Any:
        """A CUDA_MEMCPY2D for copies from host to device.

        It can be changed and used again after each call, because the driver reads it during the call.
        """
        driver = self._cuda.driver
        part = driver.CUDA_MEMCPY2D()
        part.srcMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_HOST
        part.dstMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
        return part

    @staticmethod
    def _pinned(host: HostBuffer, nbytes: int, offset: int) -> int:
        if not isinstance(host, HostBuffer):
            raise TypeError(
                f"a copy from or to {type(host).__name__} would make the host wait; use a HostBuffer"
            )
        check_range(host, nbytes, offset)
        return host.pointer + offset


class Event:
    """A CUDA event: marks a position in the work of a stream, for which the host or a stream can wait."""

    def __init__(self, cuda: Cuda, timing: bool = False) -> None:
        """Create an event.

        ``timing``: whether the event has a time for `milliseconds_since`, which makes recording slightly
        slower.
        """
        self._cuda = cuda
        self._timing = timing
        kinds = cuda.driver.CUevent_flags
        flags = kinds.CU_EVENT_BLOCKING_SYNC | (0 if timing else kinds.CU_EVENT_DISABLE_TIMING)
        self._event: Any = cuda.call("cuEventCreate", int(flags))

    @property
    def handle(self) -> Any:
        """The CUevent of cuda-bindings. Raises ValueError after `close`."""
        if self._event is None:
            raise ValueError("this event was closed; make a new one")
        return self._event

    def wait(self) -> None:
        """Wait on the host until the work before the event is done.

        The thread sleeps while it waits. For an event that was never recorded it does not wait.
        """
        self._cuda.call("cuEventSynchronize", self.handle)

    @property
    def has_passed(self) -> bool:
        """Whether the work before the event is done. This does not wait."""
        driver = self._cuda.driver
        (status,) = driver.cuEventQuery(self.handle)
        if status == driver.CUresult.CUDA_ERROR_NOT_READY:
            return False
        self._cuda.checked("cuEventQuery", (status,))
        return True

    def milliseconds_since(self, earlier: Event) -> float:
        """Return the time on the GPU from ``earlier`` to this event, ms. Both must have passed.

        Raises ValueError if one of them was made without ``timing``.
        """
        if not (self._timing and earlier._timing):
            raise ValueError("an event made without timing has no time; make both with timing=True")
        return float(self._cuda.call("cuEventElapsedTime", earlier.handle, self.handle))

    def close(self) -> None:
        """Destroy the event. Can be called twice."""
        if self._event is not None:
            event, self._event = self._event, None
            self._cuda.release("cuEventDestroy", event)


class CapturedGraph:
    """A CUDA graph: work that `Stream.capture` captured, with its addresses and argument values.

    The buffers and kernel modules that it uses must exist until `close`.
    """

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self._executable: Any = None

    def instantiate(self, graph: Any, stream: Stream) -> None:
        """Make an executable graph for `launch` from ``graph``, a CUgraph, and destroy ``graph``.

        `Stream.capture` calls this at the end of the capture.
        """
        try:
            self._executable = self._cuda.call("cuGraphInstantiate", graph, 0)
        finally:
            self._cuda.driver.cuGraphDestroy(graph)
        try:
            self._cuda.call("cuGraphUpload", self._executable, stream.opened)
        except BaseException:
            self.close()
            raise

    def launch(self, stream: Stream) -> None:
        """Enqueue the captured work on ``stream``. Raises ValueError during the capture and after `close`."""
        if self._executable is None:
            raise ValueError(
                "this graph can't be launched; launch it after its capture has ended and before it is closed"
            )
        self._cuda.call("cuGraphLaunch", self._executable, stream.opened)

    def close(self) -> None:
        """Destroy the graph, which no pending work may use. Can be called twice."""
        if self._executable is not None:
            executable, self._executable = self._executable, None
            self._cuda.release("cuGraphExecDestroy", executable)
