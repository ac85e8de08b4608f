"""Kernels from PTX: loading, arguments, launches."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from runtime.cuda import real_bindings
from runtime.cuda.fake_cuda import FakeDevice, FakeGpu
from runtime.cuda.fake_kernels import entries
from runtime.cuda.samples import COUNT, PTX, TYPES, add_kernel, floats, opened

from efftam_ros.runtime.cuda.api import Cuda, CudaError
from efftam_ros.runtime.cuda.memory import DeviceBuffer, HostBuffer
from efftam_ros.runtime.cuda.module import KernelModule, Launch
from efftam_ros.runtime.cuda.stream import Stream

GRID, BLOCK = (1, 1, 1), (64, 1, 1)


class TestLoading:
    def test_damaged_ptx_shows_what_the_compiler_said(self, cuda: Cuda) -> None:
        with pytest.raises(CudaError) as error:
            KernelModule(cuda, b"no ptx")
        assert error.value.code == 218
        assert "ptxas application ptx input, line 1; fatal : Missing .version" in str(error.value)
        assert "install the package again" in str(error.value)

    def test_ptx_newer_than_the_driver_asks_for_a_newer_one(self) -> None:
        cuda = opened(FakeGpu("12.9", driver_version=12020))
        KernelModule(cuda, PTX).close()
        with pytest.raises(CudaError, match=r"Unsupported \.version 9\.0; the driver is older"):
            KernelModule(cuda, PTX.replace(b".version 8.2", b".version 9.0"))

    def test_a_gpu_that_is_too_old_is_named(self) -> None:
        cuda = opened(FakeGpu(device=FakeDevice(compute_capability=(7, 2))))
        with pytest.raises(CudaError, match=r"\(209\); the kernels need a GPU of compute capability 8\.0"):
            KernelModule(cuda, PTX)

    def test_a_kernel_that_is_not_there_is_named(self, cuda: Cuda) -> None:
        with pytest.raises(CudaError, match="the module has no kernel subtract"):
            KernelModule(cuda, PTX).kernel("subtract")

    def test_a_module_is_closed_once(self, fake: FakeGpu, cuda: Cuda) -> None:
        module = KernelModule(cuda, PTX)
        module.close()
        module.close()
        assert len(fake.calls("cuModuleUnload")) == 1
        with pytest.raises(ValueError, match="was closed"):
            module.kernel("add")


class TestArguments:
    @pytest.fixture
    def x(self, cuda: Cuda) -> int:
        return DeviceBuffer(cuda, 4 * COUNT).pointer

    def test_must_be_as_many_as_the_types(self, cuda: Cuda, x: int) -> None:
        with pytest.raises(TypeError, match="add takes 4 arguments, not 2"):
            add_kernel(cuda).bind(GRID, BLOCK, x, x)

    @pytest.mark.parametrize("nothing", [0, None])
    def test_of_address_0_are_refused(self, cuda: Cuda, x: int, nothing: int | None) -> None:
        with pytest.raises(ValueError, match="argument 1 of add is no address"):
            add_kernel(cuda).bind(GRID, BLOCK, x, nothing, COUNT, 0.5)

    @pytest.mark.parametrize("count", [2**31, -(2**31) - 1, np.int64(2**40)])
    def test_that_do_not_fit_are_refused(self, cuda: Cuda, x: int, count: int) -> None:
        with pytest.raises(ValueError, match="argument 2 of add does not fit c_int"):
            add_kernel(cuda).bind(GRID, BLOCK, x, x, count, 0.5)

    def test_of_another_type_are_refused(self, cuda: Cuda, x: int) -> None:
        with pytest.raises(TypeError):
            add_kernel(cuda).bind(GRID, BLOCK, x, x, 0.5, 0.5)

    def test_may_be_ctypes_already(self, cuda: Cuda, x: int) -> None:
        add_kernel(cuda).bind(GRID, BLOCK, ctypes.c_void_p(x), x, ctypes.c_int(3), ctypes.c_float(0.5))


class TestALaunch:
    def test_computes_on_its_stream(self, cuda: Cuda) -> None:
        stream, x, y = Stream(cuda), DeviceBuffer(cuda, 4 * COUNT), DeviceBuffer(cuda, 4 * COUNT)
        stream.zero(x.pointer, x.nbytes)
        add_kernel(cuda).bind(GRID, BLOCK, x.pointer, y.pointer, COUNT, 2.5).run(stream)
        stream.synchronize()
        assert (floats(y.pointer) == 2.5).all()

    def test_reads_pinned_memory_without_a_copy(self, cuda: Cuda) -> None:
        stream, x, y = Stream(cuda), HostBuffer(cuda, 4 * COUNT), DeviceBuffer(cuda, 4 * COUNT)
        x.view(np.float32, (COUNT,))[:] = 7
        add_kernel(cuda).bind(GRID, BLOCK, x.device_pointer, y.pointer, COUNT, 1).run(stream)
        stream.synchronize()
        assert (floats(y.pointer) == 8).all()

    def test_keeps_its_arguments_alive_and_converts_nothing_when_run(self, fake: FakeGpu, cuda: Cuda) -> None:
        stream, x, y = Stream(cuda), DeviceBuffer(cuda, 4 * COUNT), DeviceBuffer(cuda, 4 * COUNT)
        stream.zero(x.pointer, x.nbytes)
        kernel = add_kernel(cuda)
        launches = [kernel.bind(GRID, BLOCK, x.pointer, y.pointer, COUNT, n) for n in range(200)]
        for n in (199, 3):
            launches[n].run(stream)
            stream.synchronize()
            assert (floats(y.pointer) == n).all()
        launches[3].run(stream)
        first, second = (call.summary for call in fake.calls("cuLaunchKernel")[-2:])
        assert first == second  # the same prepared addresses

    def test_of_no_threads_is_refused_by_cuda(self, cuda: Cuda) -> None:
        x, y = DeviceBuffer(cuda, 4 * COUNT), DeviceBuffer(cuda, 4 * COUNT)
        for grid, block in (((0, 1, 1), BLOCK), (GRID, (2048, 1, 1)), ((1, 65536, 1), BLOCK)):
            launch: Launch = add_kernel(cuda).bind(grid, block, x.pointer, y.pointer, COUNT, 1)
            with pytest.raises(CudaError, match=r"cuLaunchKernel failed: CUDA_ERROR_INVALID_VALUE"):
                launch.run(Stream(cuda))


DRIVE = """
import ctypes
from types import SimpleNamespace
from cuda.bindings import driver
from efftam_ros.runtime.cuda.api import Cuda, CudaError
from efftam_ros.runtime.cuda.memory import HostBuffer
from efftam_ros.runtime.cuda.module import KernelModule
from efftam_ros.runtime.cuda.stream import Stream
cuda = Cuda(driver)
try:
    KernelModule(cuda, b"bad")
except CudaError as error:
    print(error)
module = KernelModule(cuda, b"good")
kernel = module.kernel("kernel", ctypes.c_void_p, ctypes.c_int, ctypes.c_float)
launch = kernel.bind((2, 3, 4), (5, 6, 7), 0x7fff12345600, -9, 0.25)
launch.run(SimpleNamespace(opened=driver.CUstream(0x77)))
module.close()
stream, host = Stream.__new__(Stream), HostBuffer.__new__(HostBuffer)
vars(stream).update(_cuda=cuda, _stream=driver.CUstream(0x78))
vars(host).update(_pointer=0x7fff45678900, nbytes=5000)
stream.copy_part_in(0x7fff12345600, host, 1000, slice(2, 5), slice(30, 370))
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="the stub driver needs g++")
@pytest.mark.parametrize("bindings", real_bindings.versions())
def test_the_real_bindings_hand_the_driver_the_log_the_arguments_and_the_part(
    tmp_path: Path, bindings: str | None
) -> None:
    library, source = tmp_path / "libcuda.so.1", Path(__file__).parent / "stub_driver.cpp"
    command = ["g++", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    subprocess.run([*command, "-Wl,-soname,libcuda.so.1"], check=True)
    log, launched, copied = real_bindings.run(DRIVE, bindings, libraries=tmp_path).splitlines()
    assert log.startswith("cuModuleLoadDataEx failed: CUDA_ERROR_INVALID_PTX (218); room for 8192 bytes; ")
    assert launched == (
        "0x4560 grid 2 3 4 block 5 6 7 shared 0 stream 0x77 arguments 0x7fff12345600 -9 0.25 extra 0"
    )
    assert copied == (
        "kind 1 0x7fff45678900 pitch 1000 at 30 2 kind 2 0x7fff12345600 pitch 1000 at 30 2"
        " size 340 3 stream 0x78"
    )


def test_the_fake_reads_parameter_sizes_from_ptx_as_the_driver_does() -> None:
    assert entries(PTX.decode()) == {"add": tuple(ctypes.sizeof(kind) for kind in TYPES)}
    ptx = ".entry f(\n.param .align 4 .b8 f_param_0[48],\n.param .u64 .ptr .align 1 f_param_1\n)\n.entry g()"
    assert entries(ptx) == {"f": (48, 8), "g": ()}
