"""Calls the CUDA driver by cuda-bindings, checks every status, and opens the GPU."""

from __future__ import annotations

import ctypes
import importlib
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from efftam_ros.core.errors import BackendError, PipelineLostError

RESTART = "this process can't use the GPU any more: restart it"
STARTED = "work started earlier may be the cause"

STICKY = {
    46: "the GPU is lost or held by another process: look at nvidia-smi and dmesg",
    214: "the GPU's memory is damaged (uncorrectable ECC error): look at nvidia-smi -q",
    220: "the link between GPUs failed: look at nvidia-smi nvlink",
    700: "a kernel or a copy used memory outside its buffers",
    702: "a kernel ran longer than the system allows",
    709: "the device's context was destroyed, by cudaDeviceReset or by a forked process",
    710: "a kernel's assertion failed",
    714: "a kernel damaged its stack",
    715: "a kernel contained an illegal instruction",
    716: "a kernel read a misaligned address",
    717: "a kernel used an address of the wrong memory space",
    718: "a kernel jumped to an invalid address",
    719: "a kernel failed",
    721: "a kernel ended without giving back its tensor memory",
    999: "the GPU may be lost: look at nvidia-smi and dmesg",
}
"""By status code, the meaning of errors after which every CUDA call of the process fails."""

REMEDIES = {
    2: "stop other programs that hold GPU memory, or choose a smaller bundle",
    34: "the CUDA toolkit's stub libcuda.so is found before the driver's: take its folder out of"
    " LD_LIBRARY_PATH",
    100: "look at nvidia-smi: the driver sees no GPU",
    101: "choose one of the GPUs that nvidia-smi lists",
    201: "call make_current in the thread that uses the GPU",
    209: "the kernels need a GPU of compute capability 8.0 or higher",
    218: "the PTX is damaged, or made for a newer GPU: install the package again",
    222: "the driver is older than the PTX: update it to 535 or newer",
    802: "start the NVIDIA fabric manager, or wait until the system is ready",
    **dict.fromkeys(
        (805, 806, 807), "CUDA's multi-process service (MPS) does not answer: nvidia-cuda-mps-control -d"
    ),
    **dict.fromkeys(
        (808, 809), "CUDA's multi-process service (MPS) serves as many programs as it can: stop some"
    ),
    803: "the driver's library is older or newer than its kernel module: reboot",
    810: "CUDA's multi-process service (MPS) ended this program's work: look at its log",
    900: "nothing may wait, allocate or load while a stream is captured",
    901: "an earlier call in this capture was not allowed",
}

NO_BINDINGS = 'install cuda-bindings of the driver\'s major version, pip install "cuda-bindings>=12.9.1,<13"'
UPDATE_DRIVER = "update the NVIDIA driver"
NO_DRIVER = (
    "install the NVIDIA driver: sudo ubuntu-drivers install (Jetson: sudo apt install nvidia-jetpack;"
    " container: docker run --gpus all)"
)


class CudaError(RuntimeError):
    """A call of the CUDA driver failed. The text is one line with a remedy.

    ``call``: name of the function. ``code``, ``name``: number and name of its status.
    """

    def __init__(self, call: str, code: int, name: str, detail: str = "") -> None:
        self.call = call
        self.code = code
        self.name = name
        remedy = f"{STICKY[code]} ({STARTED}); {RESTART}" if code in STICKY else REMEDIES.get(code, "")
        parts = (f"{call} failed: {name} ({code})", detail, remedy)
        super().__init__("; ".join(" ".join(part.split()) for part in parts if part))


class DeviceLostError(CudaError, PipelineLostError):
    """A `CudaError` after which every CUDA call of this process fails."""


NO_DEVICE = 100
OLDEST_DRIVER = 12020
"""Smallest CUDA version of a driver that can read the package's PTX (ISA 8.2): 12020 is 12.2."""
OLDEST_BINDINGS = (12, 9, 1)
"""Oldest usable version of cuda-bindings.

Older versions hold Python's interpreter lock while they wait for the GPU, so that no other thread can run.
"""


class Cuda:
    """The functions of the CUDA driver, called by the module cuda.bindings.driver (12.9.1 to 13).

    Every status is checked. The CUDA runtime in cuda-bindings is not used, because it may be newer than the
    driver supports, as on a Jetson with JetPack 6.
    """

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self._contexts: dict[int, Any] = {}

    @classmethod
    def load(cls) -> Cuda:
        """Import cuda-bindings and check the driver.

        Raises BackendError if cuda-bindings or the driver is missing or too old.
        """
        try:
            driver = importlib.import_module("cuda.bindings.driver")
            version = str(getattr(importlib.import_module("cuda.bindings"), "__version__", "of no version"))
        except ImportError as error:
            if not has_driver():
                raise BackendError("there is no NVIDIA driver", NO_DRIVER) from error
            raise BackendError(f"cuda-bindings can't be imported ({error})", NO_BINDINGS) from error
        # With this order the indices of GPUs are those of nvidia-smi. CUDA's default order is by speed.
        os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        cuda = cls(driver)
        cuda.require_driver()
        if tuple(map(int, re.findall(r"\d+", version)[:3])) < OLDEST_BINDINGS:
            needed = ".".join(map(str, OLDEST_BINDINGS))
            raise BackendError(
                f"cuda-bindings {version} stop every thread while they wait for the GPU,"
                f" {needed} or newer is needed",
                NO_BINDINGS,
            )
        return cuda

    def require_driver(self) -> int:
        """Start the driver and return its CUDA version, as 12020 for 12.2.

        Raises BackendError if the driver is missing or too old, or if it does not start.
        """
        try:
            version = int(self.call("cuDriverGetVersion"))
            major = int(self.driver.CUDA_VERSION) // 1000
            if version // 1000 < major:
                raise BackendError(
                    f"the NVIDIA driver has CUDA {dotted(version)}, cuda-bindings needs {major}.0",
                    f"{UPDATE_DRIVER}, or {NO_BINDINGS}",
                )
            if version < OLDEST_DRIVER:
                raise BackendError(
                    f"the NVIDIA driver has CUDA {dotted(version)}, the kernels need {dotted(OLDEST_DRIVER)}",
                    f"{UPDATE_DRIVER} to 535 or newer",
                )
            self.call("cuInit", 0)
        except CudaError as error:
            visible = os.environ.get("CUDA_VISIBLE_DEVICES")
            if error.code == NO_DEVICE and visible is not None:
                raise BackendError(
                    f"CUDA_VISIBLE_DEVICES={visible!r} hides every GPU",
                    "unset it, or give a number that nvidia-smi lists",
                ) from error
            raise BackendError("the NVIDIA driver does not start", str(error)) from error
        except BackendError:
            raise
        except RuntimeError as error:  # raised by cuda-bindings if they don't find libcuda
            raise BackendError("there is no NVIDIA driver", NO_DRIVER) from error
        return version

    def call(self, name: str, *args: Any, detail: str = "") -> Any:
        """Call the driver's function ``name``, and return its value, a tuple of its values, or None.

        Raises CudaError if its status is not success. The text of the error contains ``detail``.
        """
        return self.checked(name, getattr(self.driver, name)(*args), detail)

    def release(self, name: str, *args: Any) -> None:
        """Call the driver's function ``name``, which frees a resource.

        Raises CudaError if the call fails. An error after which the process can't use the GPU any more is
        ignored, because such an error frees the resource too.
        """
        with suppress(DeviceLostError):
            self.call(name, *args)

    def make_current(self, index: int) -> None:
        """Make the primary context of GPU ``index`` current in this thread. Raises CudaError.

        All libraries of a process share the primary context.
        """
        if index not in self._contexts:
            device = self.call("cuDeviceGet", index)
            self._contexts[index] = self.call("cuDevicePrimaryCtxRetain", device)
        self.call("cuCtxSetCurrent", self._contexts[index])

    def close(self) -> None:
        """Release the contexts. Everything that uses them must have been closed before.

        The driver frees a context and its memory when all libraries of the process have released it. Can be
        called twice. `make_current` can be called afterwards, and uses a new context.
        """
        while self._contexts:
            index, _ = self._contexts.popitem()
            with suppress(DeviceLostError):
                self.call("cuDevicePrimaryCtxRelease", self.call("cuDeviceGet", index))

    @staticmethod
    def checked(name: str, answer: tuple[Any, ...], detail: str = "") -> Any:
        """Check what the driver's function ``name`` returned: its status and its values.

        Returns the value, a tuple of the values, or None. Raises CudaError if the status is not success.
        """
        status, *values = answer
        if int(status):
            kind = DeviceLostError if int(status) in STICKY else CudaError
            raise kind(name, int(status), str(status.name), detail)
        if len(values) > 1:
            return tuple(values)
        return values[0] if values else None


def number_of(handle: Any) -> int:
    """Return the address that a handle of cuda-bindings contains. `int(handle)` is deprecated there."""
    from cuda.bindings.utils import get_cuda_native_handle

    return int(get_cuda_native_handle(handle))


def has_driver() -> bool:
    """Return whether the driver's library can be loaded."""
    with suppress(OSError):
        ctypes.CDLL("libcuda.so.1")
        return True
    return False


def dotted(version: int) -> str:
    """Return a version of CUDA as text, such as "12.2" for 12020."""
    return f"{version // 1000}.{version % 1000 // 10}"


def megabytes(nbytes: int) -> str:
    """Return a number of bytes as text, such as "12 MB", rounded up. A MB is 1,000,000 bytes."""
    return f"{-(-nbytes // 1_000_000)} MB"


NAME_BYTES = 256
EVEN_GIB = 2 << 30


@dataclass(frozen=True)
class DeviceFacts:
    """Properties of a GPU and of its driver.

    Attributes:
        index: Index of the GPU.
        name: Name of the GPU, such as "Orin".
        compute_capability: Major and minor number.
        multiprocessors: Number of multiprocessors.
        total_bytes: Size of the GPU's memory.
        free_bytes: Free memory when the GPU was opened.
        integrated: Whether GPU and CPU share their memory.
        driver_version: The driver's CUDA version, as 12020 for 12.2.
    """

    index: int
    name: str
    compute_capability: tuple[int, int]
    multiprocessors: int
    total_bytes: int
    free_bytes: int
    integrated: bool
    driver_version: int

    @property
    def capability(self) -> str:
        """The compute capability as text, such as "8.7"."""
        return ".".join(map(str, self.compute_capability))

    @property
    def memory_gib(self) -> int:
        """Memory of the GPU, GiB, rounded up to an even number.

        It is rounded, because the system reserves a varying part of the memory.
        """
        return 2 * -(-self.total_bytes // EVEN_GIB)

    @property
    def board(self) -> str:
        """Name and properties of the GPU. Engines can be used only where this text is the same.

        The name alone is not enough, because different Jetson boards have the name "Orin".
        """
        return (
            f"{self.name}, compute capability {self.capability}, {self.multiprocessors} multiprocessors,"
            f" {self.memory_gib} GiB"
        )


def open_device(cuda: Cuda, index: int = 0, needed_bytes: int = 0) -> DeviceFacts:
    """Make the primary context of GPU ``index`` current in this thread, and return the GPU's properties.

    Raises BackendError if the driver is missing or too old, there is no such GPU, the GPU does not start, or
    less than ``needed_bytes`` of its memory are free.
    """
    driver_version = cuda.require_driver()
    try:
        count = int(cuda.call("cuDeviceGetCount"))
        if not 0 <= index < count:
            there = ", ".join(f"{i} ({_name(cuda, cuda.call('cuDeviceGet', i))})" for i in range(count))
            raise BackendError(f"there is no GPU {index}", f"choose one of: {there}")
        cuda.make_current(index)
        device = cuda.call("cuDeviceGet", index)
        attributes = cuda.driver.CUdevice_attribute
        major, minor, multiprocessors, integrated = (
            int(cuda.call("cuDeviceGetAttribute", attribute, device))
            for attribute in (
                attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                attributes.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                attributes.CU_DEVICE_ATTRIBUTE_INTEGRATED,
            )
        )
        free, total = (int(nbytes) for nbytes in cuda.call("cuMemGetInfo"))
        facts = DeviceFacts(
            index,
            _name(cuda, device),
            (major, minor),
            multiprocessors,
            total,
            free,
            bool(integrated),
            driver_version,
        )
    except CudaError as error:
        raise BackendError(f"GPU {index} does not open", str(error)) from error
    # An integrated GPU counts the system's page cache as used memory, but the system frees it when needed.
    if needed_bytes > free and not facts.integrated:
        raise BackendError(
            f"GPU {index} ({facts.name}) has {free // 1_000_000} MB of {megabytes(total)} free "
            f"and {megabytes(needed_bytes)} are needed",
            "stop other programs that hold its memory, or choose a smaller bundle",
        )
    return facts


def _name(cuda: Cuda, device: object) -> str:
    name: bytes = cuda.call("cuDeviceGetName", NAME_BYTES, device)
    return name.split(b"\0")[0].decode()
