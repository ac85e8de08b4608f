"""The CUDA kernels' sources, compiled for the CPU with g++, launched as the driver would."""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from efftam_ros.runtime.cuda.kernel_table import KERNEL_FOLDER, KERNELS

Extent = tuple[int, int, int]

LAUNCHER = """\
#include "shim.hpp"

{includes}

extern "C" int launch_kernel(const char *name, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                             unsigned by, unsigned bz, void **parameters) {{
    const dim3 grid{{gx, gy, gz}}, block{{bx, by, bz}};
{branches}
    return 1;
}}
"""
BRANCH = '    if (!std::strcmp(name, "{name}")) return run_grid({file}::{name}, grid, block, parameters), 0;'


class Shim:
    """The compiled kernels of a folder of .cu files. Pointers are host addresses.

    Kernels that another process compiled in the same folder are taken as they are.
    """

    def __init__(self, build_folder: Path, sources: Path = KERNEL_FOLDER) -> None:
        files = sorted({signature.file for signature in KERNELS.values()})
        # A namespace each, as each is a module of its own on the GPU.
        includes = "\n".join(f'namespace {file} {{\n#include "{sources / file}.cu"\n}}' for file in files)
        branches = "\n".join(
            BRANCH.format(name=name, file=signature.file) for name, signature in KERNELS.items()
        )
        library = build_folder / "kernels.so"
        if not library.exists():
            _compile(LAUNCHER.format(includes=includes, branches=branches), library)
        self._launch = ctypes.CDLL(str(library)).launch_kernel
        self._launch.argtypes = [ctypes.c_char_p, *[ctypes.c_uint] * 6, ctypes.c_void_p]

    def launch(self, name: str, grid: Extent, block: Extent, params_address: int) -> None:
        """What cuLaunchKernel does with the same arguments; ``params_address`` is its ``void **``."""
        if self._launch(name.encode(), *grid, *block, params_address):
            raise KeyError(f"no kernel {name}")

    def call(self, name: str, grid: Extent, block: Extent, *arguments: NDArray[Any] | int) -> None:
        """Launch with C-contiguous arrays for the pointers and ints for the values."""
        types = KERNELS[name].types
        if len(types) != len(arguments):
            raise TypeError(f"{name} takes {len(types)} arguments, got {len(arguments)}")
        values = [
            ctype(argument.ctypes.data if isinstance(argument, np.ndarray) else argument)
            for ctype, argument in zip(types, arguments, strict=True)
        ]
        addresses = np.array([ctypes.addressof(value) for value in values], np.uint64)
        self.launch(name, grid, block, addresses.ctypes.data)


def _compile(source: str, library: Path) -> None:
    launcher = library.with_name("launcher.cpp")
    launcher.write_text(source)
    flags = ["-std=c++17", "-O2", "-shared", "-fPIC", "-ftls-model=initial-exec", "-Wall", "-Werror"]
    here = Path(__file__).parent
    command = ["g++", *flags, "-Wno-unknown-pragmas", f"-I{here}", str(launcher), "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"g++ refused the kernels:\n{done.stderr}")


@functools.cache
def shared_shim() -> Shim:
    """The session's one Shim; skips the test where there is no g++."""
    import pytest  # here, as processes that only rehearse need not wait for it

    if shutil.which("g++") is None:
        pytest.skip("running the kernels on the CPU needs g++")
    with tempfile.TemporaryDirectory() as folder:  # the library stays mapped when its file is gone
        return Shim(Path(folder))
