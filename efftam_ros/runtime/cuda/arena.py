"""One allocation of device memory, divided into named tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping

from efftam_ros.runtime.cuda.api import Cuda
from efftam_ros.runtime.cuda.memory import DeviceBuffer

ALIGNMENT = 256
"""Bytes; required by TensorRT and onnxruntime of a tensor's address."""

ITEM_BYTES = 4
"""Size of the elements, float32 or int32; int64 labels take two each."""


class Arena:
    """One allocation for all tensors of a pipeline."""

    def __init__(self, cuda: Cuda, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Raises CudaError when the device has too little memory."""
        self._offsets: dict[str, int] = {}
        self._nbytes = {name: math.prod(shape) * ITEM_BYTES for name, shape in shapes.items()}
        total = 0
        for name, nbytes in self._nbytes.items():
            self._offsets[name] = total
            total += aligned(nbytes)
        self._buffer = DeviceBuffer(cuda, max(total, ALIGNMENT))

    @property
    def total_bytes(self) -> int:
        return self._buffer.nbytes

    def pointer(self, name: str) -> int:
        return self._buffer.pointer + self._offsets[name]

    def nbytes(self, name: str) -> int:
        """Without padding."""
        return self._nbytes[name]

    def span(self, first: str, last: str) -> int:
        """Bytes from the start of one tensor to the end of a later one."""
        return self._offsets[last] + self._nbytes[last] - self._offsets[first]

    def offset(self, name: str, within: str) -> int:
        """Bytes from the start of ``within`` to the start of a later tensor."""
        return self._offsets[name] - self._offsets[within]

    def free(self) -> None:
        self._buffer.free()


def aligned(nbytes: int) -> int:
    """The next multiple of `ALIGNMENT`."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
