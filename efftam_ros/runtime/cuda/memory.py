"""Allocates memory of the GPU, also divided into named tensors, and pinned memory of the host."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from efftam_ros.runtime.cuda.api import Cuda, megabytes


class DeviceBuffer:
    """A block of the GPU's memory. Its content is undefined at first."""

    def __init__(self, cuda: Cuda, nbytes: int) -> None:
        """Allocate ``nbytes``.

        Raises CudaError if the GPU has too little memory, and ValueError if ``nbytes`` is less than 1.
        """
        self.nbytes = _positive(nbytes)
        self._cuda = cuda
        self._pointer: int | None = int(
            cuda.call("cuMemAlloc", nbytes, detail=f"{megabytes(nbytes)} requested")
        )

    @property
    def pointer(self) -> int:
        """The device address, a multiple of 256. Raises ValueError after `free`."""
        return _alive(self._pointer)

    def free(self) -> None:
        """Free the memory, which no pending work may use. Can be called twice."""
        if self._pointer is not None:
            pointer, self._pointer = self._pointer, None
            self._cuda.release("cuMemFree", pointer)


class HostBuffer:
    """A block of pinned host memory, which the GPU can also read itself.

    A `Stream` copies only from and to such blocks, because a copy with other memory makes the host wait.
    """

    def __init__(self, cuda: Cuda, nbytes: int) -> None:
        """Allocate ``nbytes``.

        Raises CudaError if too little memory can be pinned, and ValueError if ``nbytes`` is less than 1.
        """
        self.nbytes = _positive(nbytes)
        self._cuda = cuda
        flags = cuda.driver.CU_MEMHOSTALLOC_PORTABLE | cuda.driver.CU_MEMHOSTALLOC_DEVICEMAP
        self._array: NDArray[np.uint8] | None = None
        detail = f"{megabytes(nbytes)} of pinned memory requested"
        self._pointer: int | None = int(cuda.call("cuMemHostAlloc", nbytes, flags, detail=detail))
        try:
            self._device_pointer = int(cuda.call("cuMemHostGetDevicePointer", self._pointer, 0))
        except BaseException:
            self.free()
            raise

    @property
    def pointer(self) -> int:
        """The address of the buffer on the host. Raises ValueError after `free`."""
        return _alive(self._pointer)

    @property
    def device_pointer(self) -> int:
        """The address by which kernels on the GPU read this host buffer. Raises ValueError after `free`."""
        _alive(self._pointer)
        return self._device_pointer

    @property
    def array(self) -> NDArray[np.uint8]:
        """All bytes as an array uint8 [nbytes], without a copy. It is invalid after `free`."""
        if self._array is None:
            self._array = np.ctypeslib.as_array((ctypes.c_uint8 * self.nbytes).from_address(self.pointer))
        return self._array

    def view(self, dtype: DTypeLike, shape: tuple[int, ...], offset: int = 0) -> NDArray[Any]:
        """Return the bytes from ``offset`` on as an array of this dtype and shape, without a copy.

        It is invalid after `free`. Raises ValueError if the buffer ends before the array does.
        """
        nbytes = np.dtype(dtype).itemsize * math.prod(shape)
        check_range(self, nbytes, offset)
        return self.array[offset : offset + nbytes].view(dtype).reshape(shape)

    def free(self) -> None:
        """Free the memory, which no pending work may use. Can be called twice."""
        if self._pointer is not None:
            pointer, self._pointer, self._array = self._pointer, None, None
            self._cuda.release("cuMemFreeHost", pointer)


def check_range(host: HostBuffer, nbytes: int, offset: int) -> None:
    """Raise ValueError if the bytes from ``offset`` to ``offset + nbytes`` are not all in the buffer."""
    if offset < 0 or nbytes < 0 or offset + nbytes > host.nbytes:
        raise ValueError(
            f"bytes {offset} to {offset + nbytes} exceed the buffer of {host.nbytes} bytes; give a larger one"
        )


def _positive(nbytes: int) -> int:
    if nbytes < 1:
        raise ValueError(f"a buffer of {nbytes} bytes can't be allocated; give at least 1")
    return nbytes


def _alive(pointer: int | None) -> int:
    if pointer is None:
        raise ValueError("this buffer was freed; make a new one")
    return pointer


ALIGNMENT = 256
"""Number of bytes of which every tensor's address must be a multiple, for TensorRT and onnxruntime."""

ITEM_BYTES = 4
"""Size of a number in an `Arena`, bytes: float32 or int32. An int64 label takes the place of two numbers."""


class Arena:
    """The memory for all tensors of a pipeline, in one allocation on the GPU.

    Tensors have the order of ``shapes``. Each begins at a multiple of `ALIGNMENT`.
    """

    def __init__(self, cuda: Cuda, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Allocate tensors of these shapes. Raises CudaError if the GPU has too little memory."""
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
        """Return the size of a tensor without padding, bytes."""
        return self._nbytes[name]

    def span(self, first: str, last: str) -> int:
        """Return the number of bytes from the start of tensor ``first`` to the end of tensor ``last``."""
        return self._offsets[last] + self._nbytes[last] - self._offsets[first]

    def offset(self, name: str, within: str) -> int:
        """Return the number of bytes from the start of tensor ``within`` to the start of tensor ``name``."""
        return self._offsets[name] - self._offsets[within]

    def free(self) -> None:
        self._buffer.free()


def aligned(nbytes: int) -> int:
    """Return ``nbytes`` rounded up to a multiple of `ALIGNMENT`."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
