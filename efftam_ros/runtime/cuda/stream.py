"""CUDA streams, events and captured graphs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from efftam_ros.runtime.cuda.api import Cuda
from efftam_ros.runtime.cuda.memory import HostBuffer, check_range

NOT_READY = 600
"""cudaErrorNotReady."""


class Stream:
    """A stream that does not synchronise with the default stream.

    Errors of asynchronous work are raised by a later call, as CudaError.
    """

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self._kinds = cuda.runtime.cudaMemcpyKind
        self._stream: Any = cuda.call("cudaStreamCreateWithFlags", cuda.runtime.cudaStreamNonBlocking)
        if int(self._stream) == 0:
            raise RuntimeError(
                "CUDA returned the default stream (handle 0), which waits for all others; report this"
            )
        self._driver_stream = cuda.driver.CUstream(int(self._stream))

    @property
    def handle(self) -> int:
        """The cudaStream_t as a number, never 0. Raises ValueError once closed."""
        return int(self._opened(self._stream))

    @property
    def driver_handle(self) -> Any:
        """The same as a CUstream."""
        return self._opened(self._driver_stream)

    def copy_in(self, device_pointer: int, host: HostBuffer, nbytes: int, offset: int = 0) -> None:
        """Copy ``nbytes`` from ``offset`` of a host buffer, which must not change until the copy is done."""
        source = self._pinned(host, nbytes, offset)
        self._copy(device_pointer, source, nbytes, self._kinds.cudaMemcpyHostToDevice)

    def copy_out(self, host: HostBuffer, device_pointer: int, nbytes: int, offset: int = 0) -> None:
        """Copy ``nbytes`` to ``offset`` of a host buffer; valid once a later event is reached."""
        target = self._pinned(host, nbytes, offset)
        self._copy(target, device_pointer, nbytes, self._kinds.cudaMemcpyDeviceToHost)

    def copy(self, to_pointer: int, from_pointer: int, nbytes: int) -> None:
        """Copy ``nbytes`` within the device."""
        self._copy(to_pointer, from_pointer, nbytes, self._kinds.cudaMemcpyDeviceToDevice)

    def zero(self, pointer: int, nbytes: int) -> None:
        """Set ``nbytes`` of the device to 0."""
        self._cuda.call("cudaMemsetAsync", pointer, 0, nbytes, self._opened(self._stream))

    def record(self, event: Event) -> None:
        """Record ``event`` behind all work enqueued so far."""
        self._cuda.call("cudaEventRecord", event.handle, self._opened(self._stream))

    def wait(self, event: Event) -> None:
        """Make later work wait for what ``event`` marks now; does not block the host."""
        self._cuda.call("cudaStreamWaitEvent", self._opened(self._stream), event.handle, 0)

    def synchronize(self) -> None:
        """Wait on the host until all work is done."""
        self._cuda.call("cudaStreamSynchronize", self._opened(self._stream))

    @contextmanager
    def capture(self) -> Iterator[CapturedGraph]:
        """Capture the block's work in a graph, which can be launched after the block.

        The block must not allocate, free, wait or load. An error ends the capture without a graph.
        """
        cuda, stream = self._cuda, self._opened(self._stream)
        # ThreadLocal: other threads, and the libraries in them, may allocate meanwhile.
        mode = cuda.runtime.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
        cuda.call("cudaStreamBeginCapture", stream, mode)
        captured = CapturedGraph(cuda)
        try:
            yield captured
        except BaseException:
            # Unchecked, because the pending error says more than the status of a broken capture.
            _, graph = cuda.runtime.cudaStreamEndCapture(stream)
            if graph is not None and int(graph):
                cuda.runtime.cudaGraphDestroy(graph)
            raise
        captured.instantiate(cuda.call("cudaStreamEndCapture", stream), self)

    def close(self) -> None:
        """Destroy the stream; work enqueued before still runs. Can be called twice."""
        if self._stream is not None:
            stream, self._stream, self._driver_stream = self._stream, None, None
            self._cuda.release("cudaStreamDestroy", stream)

    def _copy(self, target: int, source: int, nbytes: int, kind: Any) -> None:
        self._cuda.call("cudaMemcpyAsync", target, source, nbytes, kind, self._opened(self._stream))

    @staticmethod
    def _pinned(host: HostBuffer, nbytes: int, offset: int) -> int:
        if not isinstance(host, HostBuffer):
            raise TypeError(f"a copy from or to {type(host).__name__} would wait; use a HostBuffer (pinned)")
        check_range(host, nbytes, offset)
        return host.pointer + offset

    @staticmethod
    def _opened(handle: Any) -> Any:
        if handle is None:
            raise ValueError("this stream was closed; make a new one")
        return handle


class Event:
    """A position in a stream; the host waits for it without spinning."""

    def __init__(self, cuda: Cuda, timing: bool = False) -> None:
        """``timing``: needed by `milliseconds_since`; recording is slightly slower."""
        self._cuda = cuda
        self._timing = timing
        flags = cuda.runtime.cudaEventBlockingSync | (0 if timing else cuda.runtime.cudaEventDisableTiming)
        self._event: Any = cuda.call("cudaEventCreateWithFlags", flags)

    @property
    def handle(self) -> Any:
        """The cudaEvent_t. Raises ValueError once closed."""
        if self._event is None:
            raise ValueError("this event was closed; make a new one")
        return self._event

    def wait(self) -> None:
        """Wait on the host until the marked work is done; an event that was never recorded is done."""
        self._cuda.call("cudaEventSynchronize", self.handle)

    def reached(self) -> bool:
        """Whether the marked work is done, without waiting."""
        (status,) = self._cuda.runtime.cudaEventQuery(self.handle)
        if int(status) == NOT_READY:
            return False
        self._cuda.checked("cudaEventQuery", (status,))
        return True

    def milliseconds_since(self, earlier: Event) -> float:
        """GPU time between two events that were recorded and reached. Raises ValueError when either was made
        without ``timing``."""
        if not (self._timing and earlier._timing):
            raise ValueError("an event made without timing has no time; make both with timing=True")
        return float(self._cuda.call("cudaEventElapsedTime", earlier.handle, self.handle))

    def close(self) -> None:
        """Can be called twice."""
        if self._event is not None:
            event, self._event = self._event, None
            self._cuda.release("cudaEventDestroy", event)


class CapturedGraph:
    """Work captured by `Stream.capture`, with its addresses and argument values.

    Its buffers and kernel modules must outlive it.
    """

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self._executable: Any = None

    def instantiate(self, graph: Any, stream: Stream) -> None:
        """Instantiate and destroy ``graph`` (cudaGraph_t); called by `Stream.capture`."""
        try:
            self._executable = self._cuda.call("cudaGraphInstantiate", graph, 0)
        finally:
            self._cuda.runtime.cudaGraphDestroy(graph)
        try:
            self._cuda.call("cudaGraphUpload", self._executable, stream.handle)
        except BaseException:
            self.close()
            raise

    def launch(self, stream: Stream) -> None:
        """Launch the work on ``stream``. Raises ValueError during the capture and once closed."""
        if self._executable is None:
            raise ValueError(
                "this graph can't be launched; launch it after its capture has ended and before it is closed"
            )
        self._cuda.call("cudaGraphLaunch", self._executable, stream.handle)

    def close(self) -> None:
        """Can be called twice."""
        if self._executable is not None:
            executable, self._executable = self._executable, None
            self._cuda.release("cudaGraphExecDestroy", executable)
