"""Modules and kernels of the fake GPU."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from runtime.cuda.fake_memory import MisuseError
from runtime.cuda.fake_status import (
    RefusedError,
    Status,
    known,
    real_driver,
)
from runtime.cuda.fake_streams import Job

if TYPE_CHECKING:
    from runtime.cuda.fake_cuda import FakeGpu


@dataclass(frozen=True)
class Function:
    """A kernel of a module: its name and the sizes of its parameters in bytes."""

    name: str
    parameters: tuple[int, ...]
    module: int


class FakeKernels:
    """The calls of cuda.bindings.driver on modules and kernels."""

    def __init__(self, gpu: FakeGpu) -> None:
        self._gpu = gpu
        self._modules: dict[int, dict[str, tuple[int, ...]]] = {}
        self._functions: dict[int, Function] = {}

    def cuModuleLoadDataEx(
        self, image: bytes, count: int, options: Sequence[Any], values: Sequence[Any]
    ) -> Any:
        if not image.endswith(b"\0"):
            raise MisuseError("PTX without a NUL at its end: the driver would read on")
        if b"\n.version " not in image:
            log = dict(zip(options, values, strict=True))[real_driver.CUjit_option.CU_JIT_ERROR_LOG_BUFFER]
            said = b"ptxas application ptx input, line 1; fatal   : Missing .version directive\0"
            log[: len(said)] = said
            raise RefusedError(Status.CUDA_ERROR_INVALID_PTX)
        number = next(self._gpu.numbers)
        self._modules[number] = entries(image.decode())
        return real_driver.CUmodule(number)

    def cuModuleGetFunction(self, module: Any, name: bytes) -> Any:
        there = known(self._modules, module)
        if name.decode() not in there:
            raise RefusedError(Status.CUDA_ERROR_NOT_FOUND)
        number = next(self._gpu.numbers)
        self._functions[number] = Function(name.decode(), there[name.decode()], int(module))
        return real_driver.CUfunction(number)

    def cuModuleUnload(self, module: Any) -> None:
        known(self._modules, module)
        del self._modules[int(module)]

    def cuLaunchKernel(
        self,
        function: Any,
        grid_x: int,
        grid_y: int,
        grid_z: int,
        block_x: int,
        block_y: int,
        block_z: int,
        shared: int,
        stream: Any,
        parameters: int,
        extra: int,
    ) -> None:
        kernel = known(self._functions, function)
        if kernel.module not in self._modules:
            raise MisuseError(f"launch of {kernel.name}, whose module was unloaded")
        grid, block = (grid_x, grid_y, grid_z), (block_x, block_y, block_z)
        if min(*grid, *block) < 1 or np.prod(block) > 1024 or grid_y > 65535 or grid_z > 65535:
            raise RefusedError(Status.CUDA_ERROR_INVALID_VALUE)
        if kernel.name not in self._gpu.signatures or self._gpu.kernels is None:
            raise MisuseError(f"launch of {kernel.name}: give the fake GPU its signature and kernels")
        accesses = self._gpu.signatures[kernel.name]
        if len(accesses) != len(kernel.parameters):
            raise MisuseError(
                f"{kernel.name} has {len(kernel.parameters)} parameters, its signature {len(accesses)}"
            )
        values = _copies(parameters, kernel.parameters)
        reach = [
            (access, self._gpu.memory.reach(int.from_bytes(value.raw, "little")))
            for access, value in zip(accesses, values, strict=True)
            if access != "value"
        ]
        reads = tuple(touched for access, touched in reach if access in ("in", "inout"))
        writes = tuple(touched for access, touched in reach if access in ("out", "inout"))
        addresses = np.array([ctypes.addressof(value) for value in values], np.uint64)
        compute = self._gpu.kernels

        def run() -> None:
            assert len(values) == len(addresses)  # keeps the copies alive with the addresses
            compute(kernel.name, grid, block, int(addresses.ctypes.data))

        self._gpu.submit(int(stream), Job(kernel.name, reads, writes, run))


def entries(ptx: str) -> dict[str, tuple[int, ...]]:
    """The kernels of a PTX text with their parameters' sizes in bytes."""
    found = {}
    for name, listed in re.findall(r"\.entry\s+([\w$]+)\s*\(([^)]*)\)", ptx):
        sizes = []
        for parameter in listed.split(",") if listed.strip() else []:
            bits = re.search(r"\.[usbf](8|16|32|64)\b", parameter)
            assert bits is not None, parameter
            sizes.append(int(bits[1]) // 8)
        found[name] = tuple(sizes)
    return found


def _copies(parameters: int, sizes: Sequence[int]) -> list[Any]:
    """The argument values behind an array of pointers, as they are now."""
    pointers = (ctypes.c_uint64 * len(sizes)).from_address(parameters)
    return [
        ctypes.create_string_buffer(ctypes.string_at(pointer, size), size)
        for pointer, size in zip(pointers, sizes, strict=True)
    ]
