"""Device memory, one allocation of it divided into named tensors, and pinned host memory."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from efftam_ros.runtime.cuda.api import Cuda, megabytes


class DeviceBuffer:
    """Uninitialised bytes in device memory."""

    def __init__(self, cuda: Cuda, nbytes: int) -> None:
        """Raises CudaError when the GPU has too little memory."""
        self.nbytes = _positive(nbytes)
        self._cuda = cuda
        self._pointer: int | None = int(
            cuda.call("cuMemAlloc", nbytes, detail=f"{megabytes(nbytes)} asked for")
        )

    @property
    def pointer(self) -> int:
        """Device address, 256-byte aligned. Raises ValueError once freed."""
        return _alive(self._pointer)

    def free(self) -> None:
        """Free the memory; no pending work may use it. Can be called twice."""
        if self._pointer is not None:
            pointer, self._pointer = self._pointer, None
            self._cuda.release("cuMemFree", pointer)


class HostBuffer:
    """Pinned host memory, mapped for the GPU; the only host memory that a `Stream` copies from and to."""

    def __init__(self, cuda: Cuda, nbytes: int) -> None:
        """Raises CudaError when the system has too little memory to pin."""
        self.nbytes = _positive(nbytes)
        self._cuda = cuda
        flags = cuda.driver.CU_MEMHOSTALLOC_PORTABLE | cuda.driver.CU_MEMHOSTALLOC_DEVICEMAP
        self._array: NDArray[np.uint8] | None = None
        detail = f"{megabytes(nbytes)} of pinned memory asked for"
        self._pointer: int | None = int(cuda.call("cuMemHostAlloc", nbytes, flags, detail=detail))
        try:
            self._device_pointer = int(cuda.call("cuMemHostGetDevicePointer", self._pointer, 0))
        except BaseException:
            self.free()
            raise

    @property
    def pointer(self) -> int:
        """Host address. Raises ValueError once freed."""
        return _alive(self._pointer)

    @property
    def device_pointer(self) -> int:
        """Address of the same bytes in kernels. Raises ValueError once freed."""
        _alive(self._pointer)
        return self._device_pointer

    @property
    def array(self) -> NDArray[np.uint8]:
        """All bytes, without a copy; invalid once the buffer is freed."""
        if self._array is None:
            self._array = np.ctypeslib.as_array((ctypes.c_uint8 * self.nbytes).from_address(self.pointer))
        return self._array

    def view(self, dtype: DTypeLike, shape: tuple[int, ...], offset: int = 0) -> NDArray[Any]:
        """Return the bytes from ``offset`` on as an array of this dtype and shape, without a copy.

        It is invalid once the buffer is freed. Raises ValueError when the bytes are too few.
        """
        nbytes = np.dtype(dtype).itemsize * math.prod(shape)
        check_range(self, nbytes, offset)
        return self.array[offset : offset + nbytes].view(dtype).reshape(shape)

    def free(self) -> None:
        """Do as `DeviceBuffer.free`."""
        if self._pointer is not None:
            pointer, self._pointer, self._array = self._pointer, None, None
            self._cuda.release("cuMemFreeHost", pointer)


def check_range(host: HostBuffer, nbytes: int, offset: int) -> None:
    """Raises ValueError when the bytes ``offset`` to ``offset + nbytes`` exceed the buffer."""
    if offset < 0 or nbytes < 0 or offset + nbytes > host.nbytes:
        raise ValueError(
            f"bytes {offset} to {offset + nbytes} of a buffer of {host.nbytes}; give a larger buffer"
        )


def _positive(nbytes: int) -> int:
    if nbytes < 1:
        raise ValueError(f"a buffer of {nbytes} bytes; give at least 1")
    return nbytes


def _alive(pointer: int | None) -> int:
    if pointer is None:
        raise ValueError("this buffer was freed; make a new one")
    return pointer


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
        """Size without padding."""
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
    """Return the next multiple of `ALIGNMENT`."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
