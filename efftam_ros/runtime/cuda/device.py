"""Opens the GPU of a process."""

from __future__ import annotations

from dataclasses import dataclass

from efftam_ros.core.errors import BackendError
from efftam_ros.runtime.cuda.api import Cuda, CudaError, megabytes

NAME_BYTES = 256
EVEN_GIB = 2 << 30


@dataclass(frozen=True)
class DeviceFacts:
    """A GPU and its driver; ``driver_version`` as 12020 for CUDA 12.2, ``free_bytes`` when it was opened."""

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
        """Such as "8.7"."""
        return ".".join(map(str, self.compute_capability))

    @property
    def memory_gib(self) -> int:
        """Memory in GiB, rounded up to an even number: what the system keeps for itself varies."""
        return 2 * -(-self.total_bytes // EVEN_GIB)

    @property
    def board(self) -> str:
        """What makes engines of one board useless on another: all Jetson Orins are called "Orin"."""
        return (
            f"{self.name}, compute capability {self.capability}, {self.multiprocessors} multiprocessors,"
            f" {self.memory_gib} GiB"
        )


def open_device(cuda: Cuda, index: int = 0, needed_bytes: int = 0) -> DeviceFacts:
    """Make GPU ``index`` current in this thread, in the primary context, which all libraries share.

    Raises BackendError: driver missing or too old, no such GPU, a GPU that does not start, or less than
    ``needed_bytes`` of free memory.
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
    # On integrated GPUs the page cache counts as used, but the kernel frees it on demand.
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
