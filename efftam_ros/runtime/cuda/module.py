"""Loads CUDA kernels from PTX, and launches them."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from efftam_ros.runtime.cuda.api import Cuda, CudaError
from efftam_ros.runtime.cuda.kernel_table import KERNELS, load_ptx
from efftam_ros.runtime.cuda.stream import Stream

LOG_BYTES = 8192


class KernelModule:
    """A module of kernels, compiled by the driver from PTX for the current GPU."""

    def __init__(self, cuda: Cuda, ptx: bytes) -> None:
        """Compile the PTX, which may take seconds if the driver has no cached result.

        Raises CudaError with the compiler's log.
        """
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
        """Return the ``extern "C"`` kernel with this name. Raises CudaError if the module has none.

        ``types``: the ctypes types of its parameters.
        """
        if self._module is None:
            raise ValueError("this module was closed; load it again")
        function = self._cuda.call(
            "cuModuleGetFunction", self._module, name.encode(), detail=f"the CUDA module has no kernel {name}"
        )
        return Kernel(self._cuda, name, function, types)

    def close(self) -> None:
        """Unload the module. No pending work may use its kernels. Can be called twice."""
        if self._module is not None:
            module, self._module = self._module, None
            self._cuda.release("cuModuleUnload", module)


class Kernel:
    """A kernel of a `KernelModule`, which must stay open while the kernel is used."""

    def __init__(self, cuda: Cuda, name: str, function: Any, types: tuple[Any, ...]) -> None:
        self._cuda = cuda
        self._name = name
        self._function = function
        self._types = types

    def bind(self, grid: tuple[int, int, int], block: tuple[int, int, int], *values: Any) -> Launch:
        """Prepare a launch of ``grid`` blocks with ``block`` threads each.

        ``values``: the arguments, which are integers, or device addresses where the type is c_void_p. Raises
        TypeError for a wrong number of arguments, and ValueError for a null address or an integer that its
        type can't represent.
        """
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
        # Checked here, because ctypes cuts off the bits of an integer that is too large.
        if isinstance(value, int | np.integer) and argument.value != value:
            raise ValueError(f"argument {position} of {self._name} does not fit {kind.__name__}: {value}")
        return argument


class Launch:
    """A prepared launch of a kernel, with arguments that are already converted so that `run` is fast."""

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
        self._arguments = arguments  # stored, so that they exist as long as `_addresses` points to them
        self._addresses = np.array([ctypes.addressof(argument) for argument in arguments], np.uint64)
        self._parameters = int(self._addresses.ctypes.data)

    def run(self, stream: Stream) -> None:
        """Enqueue the kernel. Raises CudaError."""
        self._cuda.call("cuLaunchKernel", *self._start, stream.opened, self._parameters, 0)


THREADS = 256
"""Number of threads of a block, if a kernel has threads in x only."""
TILE = (32, 8)
"""Numbers of threads of a block in x and y, for kernels on images.

The product is `THREADS`. Threads of a tile read pixels near each other, which are cached together.
"""


class KernelSet:
    """All kernels of `kernel_table.KERNELS`, compiled by the driver."""

    def __init__(self, cuda: Cuda) -> None:
        """Load and compile the PTX files.

        Raises InputError if a file is damaged, and CudaError if the driver can't compile it.
        """
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
        """Prepare a launch of a kernel with these arguments, which are device addresses and integers.

        ``work``: the smallest numbers of threads in x and y.
        """
        columns, rows = work
        across, down = TILE if rows > 1 else (THREADS, 1)
        grid = (-(-columns // across), -(-rows // down), 1)
        return self._kernels[name].bind(grid, (across, down, 1), *values)

    def close(self) -> None:
        for module in self._modules.values():
            module.close()
