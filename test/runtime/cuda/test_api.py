"""CUDA calls: every status is checked, every failure says what to do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from runtime.cuda.fake_cuda import FakeGpu
from runtime.cuda.fake_status import real_driver

import efftam_ros
from efftam_ros.core.errors import BackendError
from efftam_ros.runtime.cuda import api
from efftam_ros.runtime.cuda.api import REMEDIES, STICKY, Cuda, CudaError, DeviceLostError, open_device
from efftam_ros.runtime.cuda.stream import Stream


class TestACall:
    def test_gives_nothing_a_value_or_a_tuple(self, cuda: Cuda) -> None:
        assert cuda.call("cuInit", 0) is None
        assert cuda.call("cuDeviceGetCount") == 1
        assert cuda.call("cuMemGetInfo") == (8_000_000_000, 8_000_000_000)

    def test_that_fails_says_which_with_what_and_what_to_do(self, fake: FakeGpu, cuda: Cuda) -> None:
        fake.fail("cuMemAlloc", 2)
        with pytest.raises(CudaError) as error:
            cuda.call("cuMemAlloc", 10, detail="1 MB\nasked for")
        assert (error.value.call, error.value.code) == ("cuMemAlloc", 2)
        assert error.value.name == "CUDA_ERROR_OUT_OF_MEMORY"
        assert str(error.value) == (
            "cuMemAlloc failed: CUDA_ERROR_OUT_OF_MEMORY (2); 1 MB asked for; "
            "stop other programs that hold GPU memory, or choose a smaller bundle"
        )


@pytest.mark.parametrize("code", STICKY)
def test_an_error_that_stays_asks_for_a_restart(fake: FakeGpu, cuda: Cuda, code: int) -> None:
    fake.lose_device(code)
    for _ in range(2):
        with pytest.raises(CudaError, match="restart it") as error:
            cuda.call("cuMemGetInfo")
        assert isinstance(error.value, DeviceLostError)
        assert "\n" not in str(error.value)


def test_the_errors_that_stay_are_those_after_which_the_driver_wants_a_new_process() -> None:
    """By the driver's documentation of CUresult; 999 is left to the reader there, and taken for one here."""
    lasting = {46, 214, 220, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 999}
    assert set(STICKY) == lasting


@pytest.mark.parametrize("code", {*STICKY, *REMEDIES})
def test_every_known_code_is_one_of_cudas(code: int) -> None:
    assert code in {int(error) for error in real_driver.CUresult}


@pytest.mark.parametrize("code", REMEDIES)
def test_a_code_that_the_user_can_mend_names_the_remedy(fake: FakeGpu, cuda: Cuda, code: int) -> None:
    fake.fail("cuInit", code)
    with pytest.raises(CudaError, match=re.escape(REMEDIES[code])) as error:
        cuda.call("cuInit", 0)
    assert not isinstance(error.value, DeviceLostError)


def test_giving_back_is_quiet_about_a_device_that_is_lost_alone(fake: FakeGpu, cuda: Cuda) -> None:
    with pytest.raises(CudaError, match="CUDA_ERROR_INVALID_VALUE"):
        cuda.release("cuMemFree", 16)
    fake.lose_device(719)
    cuda.release("cuMemFree", 16)
    cuda.release("cuModuleUnload", 16)


def failing(code: int) -> FakeGpu:
    fake = FakeGpu()
    fake.fail("cuInit", code)
    return fake


class TestTheDriver:
    @pytest.mark.parametrize(
        ("fake", "visible", "reason", "remedy"),
        [
            (
                FakeGpu("12.9", driver_version=0),
                None,
                "there is no NVIDIA driver",
                "install the NVIDIA driver",
            ),
            (FakeGpu("13", driver_version=0), None, "there is no NVIDIA driver", "install the NVIDIA driver"),
            (FakeGpu("13", driver_version=12020), None, "has CUDA 12.2, cuda-bindings needs 13.0", "update"),
            (FakeGpu("12.9", driver_version=12010), None, "has CUDA 12.1, the kernels need 12.2", "535"),
            (FakeGpu(device=()), None, "does not start", "the driver sees no GPU"),
            *((FakeGpu(device=()), v, f"DEVICES={v!r} hides every GPU", "unset it") for v in ("", "-1", "7")),
            *((failing(n), None, "does not start", "multi-process service (MPS)") for n in range(805, 811)),
            (failing(803), None, "does not start", "reboot"),
        ],
    )
    def test_that_can_not_be_used_is_told_with_the_remedy(
        self, fake: FakeGpu, visible: str | None, reason: str, remedy: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        with pytest.raises(BackendError) as refusal:
            Cuda(fake.driver).require_driver()
        assert "\n" not in str(refusal.value)
        assert reason in refusal.value.reason
        assert remedy in refusal.value.remedy

    @pytest.mark.parametrize(("version", "driver"), [("12.9", 12020), ("12.9", 13000), ("13", 13000)])
    def test_of_the_same_major_version_or_newer_will_do(self, version: str, driver: int) -> None:
        fake = FakeGpu(version, driver_version=driver)
        assert Cuda(fake.driver).require_driver() == driver


class TestLoading:
    def test_numbers_gpus_as_nvidia_smi_does_unless_told(
        self, fake: FakeGpu, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "cuda.bindings.driver", fake.driver)
        monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
        Cuda.load()
        assert os.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
        monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
        Cuda.load()
        assert os.environ["CUDA_DEVICE_ORDER"] == "FASTEST_FIRST"

    def test_needs_the_driver_s_interface_alone(self, fake: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
        """The bindings' CUDA runtime may be newer than the driver supports: JetPack 6 has CUDA 12.6."""
        monkeypatch.setitem(sys.modules, "cuda.bindings.runtime", None)
        monkeypatch.setitem(sys.modules, "cuda.bindings.driver", fake.driver)
        cuda = Cuda.load()
        assert cuda.driver is fake.driver
        stream = Stream(cuda) if open_device(cuda) else None
        assert stream is not None
        stream.synchronize()

    @pytest.mark.parametrize(
        ("version", "works"),
        [
            *((version, False) for version in ("12.6.2.post1", "12.8.0", "12.9.0", "of no version")),
            *((version, True) for version in ("12.9.1", "12.9.10", "13.0.0", "13.4.4")),
        ],
    )
    def test_refuses_bindings_that_stop_all_threads_while_they_wait(
        self, version: str, works: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "cuda.bindings.driver", FakeGpu("12.9").driver)
        monkeypatch.setattr("cuda.bindings.__version__", version)
        if works:
            assert isinstance(Cuda.load(), Cuda)
            return
        with pytest.raises(BackendError) as refusal:
            Cuda.load()
        assert version in refusal.value.reason
        assert "12.9.1" in refusal.value.reason
        assert 'pip install "cuda-bindings>=12.9.1,<13"' in refusal.value.remedy

    def test_never_names_the_runtime(self) -> None:
        package = Path(efftam_ros.__file__).parent
        naming = [
            path.relative_to(package)
            for path in package.rglob("*.py")
            if re.search(
                r"cuda\.bindings(\.| import .*\b)runtime|\bimport cudart\b|libcudart",
                path.read_text(encoding="utf-8"),
            )
        ]
        assert naming == []

    @pytest.mark.parametrize(
        ("has_driver", "said"),
        [
            (True, r"can't be imported .*pip install \"cuda-bindings"),
            (False, "there is no NVIDIA driver; install the NVIDIA driver"),
        ],
    )
    def test_without_bindings_says_what_to_install_the_driver_first(
        self, has_driver: bool, said: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
        monkeypatch.setattr(api, "has_driver", lambda: has_driver)
        with pytest.raises(BackendError, match=said):
            Cuda.load()
        for name in [name for name in sys.modules if name.split(".")[0] == "cuda"]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "cuda", ModuleType("cuda"))  # another package of that name
        with pytest.raises(BackendError, match=said):
            Cuda.load()


ROOT = Path(efftam_ros.__file__).parents[1]


def versions() -> list[object]:
    """Those of cuda-bindings: parameters for `run`, the installed ones and others where some are at hand."""
    other = os.environ.get("EFFTAM_CUDA_BINDINGS")
    skip = pytest.mark.skipif(
        not other, reason="EFFTAM_CUDA_BINDINGS names no folder with another cuda-bindings unpacked"
    )
    return [pytest.param(None, id="installed"), pytest.param(other, id="other", marks=skip)]


def run(code: str, bindings: str | None) -> str:
    """What ``code`` prints, with the bindings of a folder first."""
    path = [entry for entry in (bindings, str(ROOT), os.environ.get("PYTHONPATH")) if entry]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    done = subprocess.run(
        [sys.executable, "-u", "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


LOAD = """
from efftam_ros.runtime.cuda.api import Cuda
from efftam_ros.core.errors import BackendError
try:
    Cuda.load()
except BackendError as refusal:
    print(refusal)
else:
    print("opened")
"""

# Every call of the wrappers, on handles that no one made: nothing runs without a driver, but each argument is
# converted as on a machine that has one.
CONVERT = """
import ctypes
from cuda.bindings import driver
from efftam_ros.runtime.cuda.api import Cuda, CudaError
from efftam_ros.runtime.cuda.memory import DeviceBuffer, HostBuffer
from efftam_ros.runtime.cuda.module import Kernel, KernelModule
from efftam_ros.runtime.cuda.stream import CapturedGraph, Event, Stream
cuda = Cuda(driver)
def made(kind, **fields):
    thing = kind.__new__(kind)
    vars(thing).update(_cuda=cuda, **fields)
    return thing
stream = made(Stream, _stream=driver.CUstream(64), is_capturing=False)
in_capture = made(Stream, _stream=driver.CUstream(64), is_capturing=True)
event = made(Event, _event=driver.CUevent(64), _timing=True)
host = made(HostBuffer, _pointer=4096, nbytes=64)
graph = made(CapturedGraph, _executable=driver.CUgraphExec(64))
module = made(KernelModule, _module=driver.CUmodule(64))
kernel = Kernel(cuda, "k", driver.CUfunction(64), (ctypes.c_int,))
attribute = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
def capture():
    with stream.capture():
        pass
for call in (
    lambda: DeviceBuffer(cuda, 64), lambda: HostBuffer(cuda, 64), lambda: Stream(cuda), lambda: Event(cuda),
    lambda: stream.copy_in(4096, host, 64), lambda: stream.copy_out(host, 4096, 64),
    lambda: stream.copy_part_in(4096, host, 16, slice(1, 3), slice(4, 8)),
    lambda: stream.copy(4096, 8192, 64), lambda: stream.zero(4096, 64), lambda: stream.record(event),
    lambda: in_capture.record(event),
    lambda: stream.wait(event), stream.synchronize, capture, event.wait,
    lambda: event.milliseconds_since(event), lambda: graph.launch(stream),
    lambda: cuda.call("cuStreamEndCapture", stream.opened), host.free, stream.close, event.close,
    graph.close, lambda: made(DeviceBuffer, _pointer=4096, nbytes=64).free(),
    lambda: made(CapturedGraph).instantiate(driver.CUgraph(64), made(Stream, _stream=driver.CUstream(64))),
    lambda: cuda.call("cuMemHostGetDevicePointer", 4096, 0), lambda: cuda.call("cuMemGetInfo"),
    lambda: cuda.call("cuDeviceGetAttribute", attribute, driver.CUdevice(0)),
    lambda: cuda.call("cuDeviceGet", 0), lambda: cuda.call("cuDeviceGetName", 256, driver.CUdevice(0)),
    lambda: cuda.call("cuDevicePrimaryCtxRetain", driver.CUdevice(0)),
    lambda: cuda.call("cuDevicePrimaryCtxRelease", driver.CUdevice(0)),
    lambda: cuda.call("cuCtxSetCurrent", driver.CUcontext(64)),
    lambda: KernelModule(cuda, b"ptx"), lambda: module.kernel("k"), module.close,
    lambda: kernel.bind((1, 1, 1), (1, 1, 1), 5).run(made(Stream, _stream=driver.CUstream(64))),
):
    try:
        call()
        print("passed")
    except CudaError:
        raise
    except RuntimeError:  # no libcuda: the arguments were taken
        pass
print("converted", driver.CUDA_VERSION // 1000)
"""


@pytest.mark.skipif(api.has_driver(), reason="this machine has an NVIDIA driver")
@pytest.mark.parametrize("bindings", versions())
class TestTheRealBindingsWithoutADriver:
    def test_are_refused_in_one_line(self, bindings: str | None) -> None:
        said = run(LOAD, bindings)
        assert said.startswith("there is no NVIDIA driver; install the NVIDIA driver")
        assert "\n" not in said

    def test_take_every_argument_that_the_wrappers_give(self, bindings: str | None) -> None:
        assert run(CONVERT, bindings).startswith("converted 1")


def test_bindings_that_raise_without_a_driver_are_refused_too() -> None:
    def missing() -> None:
        raise RuntimeError('Function "cuInit" not found')

    with pytest.raises(BackendError, match="there is no NVIDIA driver"):
        Cuda(SimpleNamespace(cuDriverGetVersion=missing)).require_driver()
