"""Loads PTX, the package's or any other, and launches its kernels."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from efftam_ros.runtime.cuda.api import Cuda, CudaError
from efftam_ros.runtime.cuda.kernel_table import KERNELS, load_ptx
from efftam_ros.runtime.cuda.stream import Stream

LOG_BYTES = 8192


class KernelModule:
    """PTX, compiled by the driver for the current GPU."""

    def __init__(self, cuda: Cuda, ptx: bytes) -> None:
        """May take seconds when the driver has no cached result. Raises CudaError with the compiler's log."""
        self._cuda = cuda
        options = cuda.driver.CUjit_option
        log = bytearray(LOG_BYTES)
        names = (options.CU_JIT_ERROR_LOG_BUFFER, options.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
        try:
            self._module: Any = cuda.call("cuModuleLoadDataEx", ptx + b"\0", 2, names, (log, len(log)))
        except CudaError as error:
            message = log.split(b"\0")[0].decode(errors="replace")
            raise CudaError(error.call, error.code, error.name, message) from error

    def kernel(self, name: str, *types: Any) -> Kernel:
        """Return the ``extern "C"`` kernel ``name`` with parameters of these ctypes. Raises CudaError without
        it."""
        if self._module is None:
            raise ValueError("this module was closed; load it again")
        function = self._cuda.call(
            "cuModuleGetFunction", self._module, name.encode(), detail=f"the module has no kernel {name}"
        )
        return Kernel(self._cuda, name, function, types)

    def close(self) -> None:
        """Unload the module; no pending work may use its kernels. Can be called twice."""
        if self._module is not None:
            module, self._module = self._module, None
            self._cuda.release("cuModuleUnload", module)


class Kernel:
    """A kernel; its module must stay open."""

    def __init__(self, cuda: Cuda, name: str, function: Any, types: tuple[Any, ...]) -> None:
        self._cuda = cuda
        self._name = name
        self._function = function
        self._types = types

    def bind(self, grid: tuple[int, int, int], block: tuple[int, int, int], *values: Any) -> Launch:
        """Prepare a launch of ``grid`` blocks of ``block`` threads. ``values``: numbers, or device addresses
        (c_void_p). Raises TypeError (another number of arguments) and
        ValueError (a null address, a number out of range of its type)."""
        if len(values) != len(self._types):
            raise TypeError(f"{self._name} takes {len(self._types)} arguments, not {len(values)}")
        arguments = tuple(
            self._argument(position, kind, value)
            for position, (kind, value) in enumerate(zip(self._types, values, strict=True))
        )
        return Launch(self._cuda, self._function, grid, block, arguments)

    def _argument(self, position: int, kind: Any, value: Any) -> Any:
        argument = kind(value)
        if kind is ctypes.c_void_p and not argument.value:
            raise ValueError(f"argument {position} of {self._name} is no address: {value!r}")
        # ctypes truncates silently.
        if isinstance(value, int | np.integer) and argument.value != value:
            raise ValueError(f"argument {position} of {self._name} does not fit {kind.__name__}: {value}")
        return argument


class Launch:
    """A kernel with converted arguments, so that `run` only launches."""

    def __init__(
        self,
        cuda: Cuda,
        function: Any,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        arguments: tuple[Any, ...],
    ) -> None:
        self._cuda = cuda
        self._start = (function, *grid, *block, 0)
        self._arguments = arguments  # kept alive for the addresses below
        self._addresses = np.array([ctypes.addressof(argument) for argument in arguments], np.uint64)
        self._parameters = int(self._addresses.ctypes.data)

    def run(self, stream: Stream) -> None:
        """Enqueue the kernel. Raises CudaError."""
        self._cuda.call("cuLaunchKernel", *self._start, stream.opened, self._parameters, 0)


THREADS = 256
"""Threads per block; one thread computes one element."""
TILE = (32, 8)
"""The same number as a tile of an image: its threads read pixels that lie close together."""


class KernelSet:
    """All kernels of `kernel_table.KERNELS`; the driver compiles their PTX in the constructor."""

    def __init__(self, cuda: Cuda) -> None:
        """Raises InputError (a damaged PTX file) and CudaError (a driver that can't read it)."""
        self._modules: dict[str, KernelModule] = {}
        try:
            for file in sorted({signature.file for signature in KERNELS.values()}):
                self._modules[file] = KernelModule(cuda, load_ptx(file))
            self._kernels = {
                name: self._modules[signature.file].kernel(name, *signature.types)
                for name, signature in KERNELS.items()
            }
        except BaseException:
            self.close()
            raise

    def launch(self, name: str, work: tuple[int, int], *values: int) -> Launch:
        """Bind a kernel to arguments (device addresses and integers); ``work``: threads in x and y."""
        columns, rows = work
        across, down = TILE if rows > 1 else (THREADS, 1)
        grid = (-(-columns // across), -(-rows // down), 1)
        return self._kernels[name].bind(grid, (across, down, 1), *values)

    def close(self) -> None:
        for module in self._modules.values():
            module.close()
