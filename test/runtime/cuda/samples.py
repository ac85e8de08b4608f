"""A small kernel as PTX and as Python, and the GPU that runs it."""

from __future__ import annotations

import ctypes

import numpy as np
from runtime.cuda.fake_cuda import FakeGpu

from efftam_ros.runtime.cuda.api import Cuda, open_device
from efftam_ros.runtime.cuda.module import Kernel, KernelModule

COUNT = 64

PTX = b"""
.version 8.2
.target sm_80
.address_size 64
.visible .entry add(
\t.param .u64 add_param_0,
\t.param .u64 add_param_1,
\t.param .u32 add_param_2,
\t.param .f32 add_param_3
)
{
\tret;
}
"""
"""add(const float* x, float* y, int count, float term): y = x + term."""

TYPES = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_float)


def add(name: str, grid: tuple[int, ...], block: tuple[int, ...], parameters: int) -> None:
    """What the kernel does."""
    assert name == "add"
    pointers = (ctypes.c_void_p * 4).from_address(parameters)
    x, y = (ctypes.c_uint64.from_address(pointers[i]).value for i in range(2))
    count = ctypes.c_int.from_address(pointers[2]).value
    term = ctypes.c_float.from_address(pointers[3]).value
    assert grid[0] * block[0] >= count
    floats(y, count)[:] = floats(x, count) + np.float32(term)


def floats(address: int, count: int = COUNT) -> np.ndarray:
    return np.ctypeslib.as_array((ctypes.c_float * count).from_address(address))


def opened(fake: FakeGpu) -> Cuda:
    """The wrapper over a fake GPU that has the kernel."""
    fake.kernels = add
    fake.signatures = {"add": ("in", "out", "value", "value")}
    cuda = Cuda(fake.driver)
    open_device(cuda)
    return cuda


def add_kernel(cuda: Cuda) -> Kernel:
    return KernelModule(cuda, PTX).kernel("add", *TYPES)
