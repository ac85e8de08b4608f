"""Kernels from PTX: loading, arguments, launches."""

from __future__ import annotations

import numpy as np
import pytest
from runtime.cuda.fake_cuda import FakeGpu
from runtime.cuda.samples import COUNT, PTX, add_kernel, floats

from efftam_ros.runtime.cuda.api import Cuda, CudaError
from efftam_ros.runtime.cuda.memory import DeviceBuffer
from efftam_ros.runtime.cuda.module import KernelModule
from efftam_ros.runtime.cuda.stream import Stream

GRID, BLOCK = (1, 1, 1), (64, 1, 1)


class TestLoading:
    def test_damaged_ptx_shows_what_the_compiler_said(self, cuda: Cuda) -> None:
        with pytest.raises(CudaError) as error:
            KernelModule(cuda, b"no ptx")
        assert error.value.code == 218
        assert "ptxas application ptx input, line 1; fatal : Missing .version" in str(error.value)
        assert "install the package again" in str(error.value)

    def test_a_kernel_that_is_not_there_is_named(self, cuda: Cuda) -> None:
        with pytest.raises(CudaError, match="the CUDA module has no kernel subtract"):
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

    @pytest.mark.parametrize(
        ("arguments", "error", "said"),
        [
            (("x", "x"), TypeError, "add takes 4 arguments, not 2"),
            (("x", 0, COUNT, 0.5), ValueError, "argument 1 of add is no address"),
            (("x", None, COUNT, 0.5), ValueError, "argument 1 of add is no address"),
            (("x", "x", 2**31, 0.5), ValueError, "argument 2 of add does not fit c_int"),
            (("x", "x", -(2**31) - 1, 0.5), ValueError, "argument 2 of add does not fit c_int"),
            (("x", "x", np.int64(2**40), 0.5), ValueError, "argument 2 of add does not fit c_int"),
            (("x", "x", 0.5, 0.5), TypeError, None),
        ],
    )
    def test_that_do_not_fit_are_refused(
        self, cuda: Cuda, x: int, arguments: tuple[object, ...], error: type[Exception], said: str | None
    ) -> None:
        """``"x"``: the address of a buffer."""
        with pytest.raises(error, match=said):
            add_kernel(cuda).bind(GRID, BLOCK, *(x if one == "x" else one for one in arguments))


class TestALaunch:
    def test_keeps_its_arguments_alive(self, cuda: Cuda) -> None:
        stream, x, y = Stream(cuda), DeviceBuffer(cuda, 4 * COUNT), DeviceBuffer(cuda, 4 * COUNT)
        stream.zero(x.pointer, x.nbytes)
        kernel = add_kernel(cuda)
        launches = [kernel.bind(GRID, BLOCK, x.pointer, y.pointer, COUNT, n) for n in range(200)]
        for n in (199, 3, 3):
            launches[n].run(stream)
            stream.synchronize()
            assert (floats(y.pointer) == n).all()
