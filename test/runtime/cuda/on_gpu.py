"""The committed kernels on a real GPU, called as the Shim calls those that g++ compiled."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from efftam_ros.core.errors import BackendError
from efftam_ros.runtime.cuda.api import Cuda, open_device
from efftam_ros.runtime.cuda.kernel_table import KERNELS, load_ptx
from efftam_ros.runtime.cuda.memory import DeviceBuffer, HostBuffer
from efftam_ros.runtime.cuda.module import KernelModule
from efftam_ros.runtime.cuda.stream import Stream

Extent = tuple[int, int, int]


class OnGpu:
    """Uploads every array, launches, and takes every array back."""

    def __init__(self) -> None:
        self._cuda = Cuda.load()
        open_device(self._cuda)
        self._stream = Stream(self._cuda)
        files = {signature.file for signature in KERNELS.values()}
        self._modules = {file: KernelModule(self._cuda, load_ptx(file)) for file in files}

    def call(self, name: str, grid: Extent, block: Extent, *arguments: NDArray[Any] | int) -> None:
        signature = KERNELS[name]
        places = [self._place(a) if isinstance(a, np.ndarray) else None for a in arguments]
        values = [a if p is None else p[0].pointer for a, p in zip(arguments, places, strict=True)]
        kernel = self._modules[signature.file].kernel(name, *signature.types)
        kernel.bind(grid, block, *values).run(self._stream)
        for parameter, argument, place in zip(signature.parameters, arguments, places, strict=True):
            if place is None or not isinstance(argument, np.ndarray):
                continue
            device, host = place
            self._stream.copy_out(host, device.pointer, max(argument.nbytes, 1))
            self._stream.synchronize()
            if parameter.access != "in":
                argument.reshape(-1).view(np.uint8)[:] = host.array[: argument.nbytes]
            device.free()
            host.free()

    def _place(self, array: NDArray[Any]) -> tuple[DeviceBuffer, HostBuffer]:
        nbytes = max(array.nbytes, 1)
        device, host = DeviceBuffer(self._cuda, nbytes), HostBuffer(self._cuda, nbytes)
        host.array[: array.nbytes] = np.frombuffer(array.tobytes(), np.uint8)
        self._stream.copy_in(device.pointer, host, nbytes)
        return device, host


@functools.cache
def shared_gpu() -> OnGpu:
    """The session's one; skips the test where there is no GPU."""
    try:
        return OnGpu()
    except BackendError as error:
        pytest.skip(str(error))
