"""Working memory of TensorRT engines."""

from __future__ import annotations

from efftam_ros.core.errors import BackendError
from efftam_ros.runtime.cuda.api import Cuda, CudaError, DeviceLostError, megabytes
from efftam_ros.runtime.cuda.arena import ALIGNMENT
from efftam_ros.runtime.cuda.memory import DeviceBuffer


class Scratch:
    """The working memory that all engines of a stream share: the stream runs them one after the other.

    It is allocated when an engine first runs, as large as any engine that is open then needs. For an engine
    that needs more and is opened later there is another one, because captured graphs keep their address.
    """

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self._needed_bytes = 0
        self._buffers: list[DeviceBuffer] = []

    @property
    def nbytes(self) -> int:
        """Allocated, or to be allocated at the first run."""
        held = sum(buffer.nbytes for buffer in self._buffers)
        largest = self._buffers[-1].nbytes if self._buffers else 0
        return held + (self._needed_bytes if self._needed_bytes > largest else 0)

    def reserve(self, nbytes: int) -> None:
        """An engine that needs so much was opened."""
        self._needed_bytes = max(self._needed_bytes, nbytes)

    def buffer(self) -> DeviceBuffer:
        """Memory for every engine that is open. Raises BackendError when the GPU has too little."""
        if not self._buffers or self._buffers[-1].nbytes < self._needed_bytes:
            try:
                self._buffers.append(DeviceBuffer(self._cuda, max(self._needed_bytes, ALIGNMENT)))
            except DeviceLostError:
                raise
            except CudaError as error:
                raise BackendError(
                    f"TensorRT needs {megabytes(self._needed_bytes)} of working memory ({error})",
                    "stop other programs that hold GPU memory, or choose a smaller bundle",
                ) from error
        return self._buffers[-1]

    def free(self) -> None:
        """No pending work may use it."""
        for buffer in self._buffers:
            buffer.free()
        self._buffers.clear()
        self._needed_bytes = 0
