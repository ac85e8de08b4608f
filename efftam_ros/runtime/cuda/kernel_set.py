"""The kernels of the package, loaded on the device."""

from __future__ import annotations

from efftam_ros.runtime.cuda.api import Cuda
from efftam_ros.runtime.cuda.kernel_table import KERNELS, load_ptx
from efftam_ros.runtime.cuda.module import KernelModule, Launch

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
                name: self._modules[signature.file].kernel(name, *(p.ctype for p in signature.parameters))
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
        self._modules = {}
