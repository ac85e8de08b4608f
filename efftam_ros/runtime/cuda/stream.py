"""CUDA streams, events and captured graphs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from efftam_ros.runtime.cuda.api import Cuda, number_of
from efftam_ros.runtime.cuda.memory import HostBuffer, check_range

CUDA_GRAPH = "cuda graph"
"""How work is named that is launched as one captured graph (`device.graph.Binding.launch`)."""


class Stream:
    """A stream that does not synchronise with the default stream.

    Errors of asynchronous work are raised by a later call, as CudaError.
    """

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self.is_capturing = False
        self._stream: Any = cuda.call(
            "cuStreamCreate", int(cuda.driver.CUstream_flags.CU_STREAM_NON_BLOCKING)
        )

    @property
    def cuda(self) -> Cuda:
        """The driver that it belongs to."""
        return self._cuda

    @property
    def handle(self) -> int:
        """CUstream and cudaStream_t as a number. Raises ValueError once closed."""
        return number_of(self.opened)

    @property
    def opened(self) -> Any:
        """The CUstream. Raises ValueError once closed."""
        if self._stream is None:
            raise ValueError("this stream was closed; make a new one")
        return self._stream

    def copy_in(self, device_pointer: int, host: HostBuffer, nbytes: int, offset: int = 0) -> None:
        """Copy ``nbytes`` from ``offset`` of a host buffer, which must not change until the copy is done."""
        source = self._pinned(host, nbytes, offset)
        self._cuda.call("cuMemcpyHtoDAsync", device_pointer, source, nbytes, self.opened)

    def copy_part_in(
        self, device_pointer: int, host: HostBuffer, pitch: int, rows: slice, columns: slice
    ) -> None:
        """Copy these rows, and of each these bytes, of a matrix whose rows are ``pitch`` bytes apart.

        It begins at ``device_pointer`` and at the start of the host buffer, as for `copy_in`. Raises
        ValueError when the part is empty or leaves the matrix or the buffer.
        """
        width, height = columns.stop - columns.start, rows.stop - rows.start
        if min(width, height) < 1 or rows.start < 0 or columns.start < 0 or columns.stop > pitch:
            raise ValueError(f"rows {rows}, bytes {columns} of rows of {pitch}; give a part of the matrix")
        end = (rows.stop - 1) * pitch + columns.stop
        part = self._part
        part.srcHost, part.dstDevice = self._pinned(host, end, 0), device_pointer
        part.srcPitch = part.dstPitch = pitch
        part.srcXInBytes = part.dstXInBytes = columns.start
        part.srcY = part.dstY = rows.start
        part.WidthInBytes, part.Height = width, height
        self._cuda.call("cuMemcpy2DAsync", part, self.opened)

    def copy_out(self, host: HostBuffer, device_pointer: int, nbytes: int, offset: int = 0) -> None:
        """Copy ``nbytes`` to ``offset`` of a host buffer; valid once a later event is reached."""
        target = self._pinned(host, nbytes, offset)
        self._cuda.call("cuMemcpyDtoHAsync", target, device_pointer, nbytes, self.opened)

    def copy(self, to_pointer: int, from_pointer: int, nbytes: int) -> None:
        """Copy ``nbytes`` within the device."""
        self._cuda.call("cuMemcpyDtoDAsync", to_pointer, from_pointer, nbytes, self.opened)

    def zero(self, pointer: int, nbytes: int) -> None:
        """Set ``nbytes`` of the device to 0."""
        self._cuda.call("cuMemsetD8Async", pointer, 0, nbytes, self.opened)

    def record(self, event: Event) -> None:
        """Record ``event`` behind all work enqueued so far; in a capture: in every launch of the graph."""
        if self.is_capturing:
            flag = int(self._cuda.driver.CUevent_record_flags.CU_EVENT_RECORD_EXTERNAL)
            self._cuda.call("cuEventRecordWithFlags", event.handle, self.opened, flag)
        else:
            self._cuda.call("cuEventRecord", event.handle, self.opened)

    def wait(self, event: Event) -> None:
        """Make later work wait for what ``event`` marks now; does not block the host."""
        self._cuda.call("cuStreamWaitEvent", self.opened, event.handle, 0)

    def synchronize(self) -> None:
        """Wait on the host until all work is done."""
        self._cuda.call("cuStreamSynchronize", self.opened)

    @contextmanager
    def capture(self) -> Iterator[CapturedGraph]:
        """Capture the block's work in a graph, which can be launched after the block.

        The block must not allocate, free, wait or load. An error ends the capture without a graph.
        """
        cuda, stream = self._cuda, self.opened
        # ThreadLocal: other threads, and the libraries in them, may allocate meanwhile.
        mode = cuda.driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        cuda.call("cuStreamBeginCapture", stream, mode)
        captured = CapturedGraph(cuda)
        self.is_capturing = True
        try:
            yield captured
        except BaseException:
            # Unchecked, because the pending error is more specific than the status of a broken capture.
            _, graph = cuda.driver.cuStreamEndCapture(stream)
            if graph is not None and number_of(graph):
                cuda.driver.cuGraphDestroy(graph)
            raise
        finally:
            self.is_capturing = False
        captured.instantiate(cuda.call("cuStreamEndCapture", stream), self)

    def close(self) -> None:
        """Destroy the stream; work enqueued before still runs. Can be called twice."""
        if self._stream is not None:
            stream, self._stream = self._stream, None
            self._cuda.release("cuStreamDestroy", stream)

    @cached_property
    def _part(self) -> Any:
        """A CUDA_MEMCPY2D from host to device; the driver copies it when it is called."""
        driver = self._cuda.driver
        part = driver.CUDA_MEMCPY2D()
        part.srcMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_HOST
        part.dstMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
        return part

    @staticmethod
    def _pinned(host: HostBuffer, nbytes: int, offset: int) -> int:
        if not isinstance(host, HostBuffer):
            raise TypeError(f"a copy from or to {type(host).__name__} would wait; use a HostBuffer (pinned)")
        check_range(host, nbytes, offset)
        return host.pointer + offset


class Event:
    """A position in a stream; the host waits for it without spinning."""

    def __init__(self, cuda: Cuda, timing: bool = False) -> None:
        """``timing``: needed by `milliseconds_since`; recording is slightly slower."""
        self._cuda = cuda
        self._timing = timing
        kinds = cuda.driver.CUevent_flags
        flags = kinds.CU_EVENT_BLOCKING_SYNC | (0 if timing else kinds.CU_EVENT_DISABLE_TIMING)
        self._event: Any = cuda.call("cuEventCreate", int(flags))

    @property
    def handle(self) -> Any:
        """The CUevent. Raises ValueError once closed."""
        if self._event is None:
            raise ValueError("this event was closed; make a new one")
        return self._event

    def wait(self) -> None:
        """Wait on the host until the marked work is done; an event that was never recorded is done."""
        self._cuda.call("cuEventSynchronize", self.handle)

    @property
    def has_passed(self) -> bool:
        """Whether the marked work is done; does not wait."""
        driver = self._cuda.driver
        (status,) = driver.cuEventQuery(self.handle)
        if status == driver.CUresult.CUDA_ERROR_NOT_READY:
            return False
        self._cuda.checked("cuEventQuery", (status,))
        return True

    def milliseconds_since(self, earlier: Event) -> float:
        """GPU time between two events that were reached. Raises ValueError for one without ``timing``."""
        if not (self._timing and earlier._timing):
            raise ValueError("an event made without timing has no time; make both with timing=True")
        return float(self._cuda.call("cuEventElapsedTime", earlier.handle, self.handle))

    def close(self) -> None:
        """Can be called twice."""
        if self._event is not None:
            event, self._event = self._event, None
            self._cuda.release("cuEventDestroy", event)


class CapturedGraph:
    """Work captured by `Stream.capture`, with its addresses and argument values.

    Its buffers and kernel modules must outlive it.
    """

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self._executable: Any = None

    def instantiate(self, graph: Any, stream: Stream) -> None:
        """Instantiate and destroy ``graph`` (CUgraph); called by `Stream.capture`."""
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
        """Launch the work on ``stream``. Raises ValueError during the capture and once closed."""
        if self._executable is None:
            raise ValueError(
                "this graph can't be launched; launch it after its capture has ended and before it is closed"
            )
        self._cuda.call("cuGraphLaunch", self._executable, stream.opened)

    def close(self) -> None:
        """Can be called twice."""
        if self._executable is not None:
            executable, self._executable = self._executable, None
            self._cuda.release("cuGraphExecDestroy", executable)
