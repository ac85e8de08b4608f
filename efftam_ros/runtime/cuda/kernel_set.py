"""The kernels of the package, loaded on the device."""

from __future__ import annotations

from efftam_ros.runtime.cuda.api import Cuda
from efftam_ros.runtime.cuda.kernel_table import KERNELS, load_ptx
from efftam_ros.runtime.cuda.module import KernelModule, Launch

THREADS = 256
"""Threads per block; one thread computes one element."""


class KernelSet:
    """All kernels of `kernel_table.KERNELS`; the driver compiles their PTX in the constructor."""

    def __init__(self, cuda: Cuda) -> None:
        """Raises InputError (a damaged PTX file) and CudaError (a driver that can't read it)."""
        self._modules: dict[str, KernelModule] = {}
        try:
            for file in sorted({signature.file for signature in KERNELS.values()}):
                self._modules[file] = KernelModule(cuda, load_ptx(file))
            self._kernels = {
                name: self._modules[signature.file].kernel(name, *(p.ctype for p in signature.parameters))
                for name, signature in KERNELS.items()
            }
        except BaseException:
            self.close()
            raise

    def launch(self, name: str, work: tuple[int, int], *values: int) -> Launch:
        """Bind a kernel to arguments (device addresses and integers); ``work``: threads in x and y."""
        columns, rows = work
        grid = (-(-columns // THREADS), rows, 1)
        return self._kernels[name].bind(grid, (THREADS, 1, 1), *values)

    def close(self) -> None:
        for module in self._modules.values():
            module.close()
        self._modules = {}
