"""Opens the GPU of a process."""

from __future__ import annotations

from dataclasses import dataclass

from efftam_ros.core.errors import BackendError
from efftam_ros.runtime.cuda.api import Cuda, CudaError, megabytes


@dataclass(frozen=True)
class DeviceFacts:
    """A GPU and its driver; versions as 12020 for CUDA 12.2, ``free_bytes`` when it was opened."""

    index: int
    name: str
    compute_capability: tuple[int, int]
    total_bytes: int
    free_bytes: int
    integrated: bool
    driver_version: int
    runtime_version: int


def open_device(cuda: Cuda, index: int = 0, needed_bytes: int = 0) -> DeviceFacts:
    """Make GPU ``index`` current in this thread, in the primary context, which all libraries share.

    Raises BackendError: driver missing or too old, no such GPU, a GPU that does not start, or less than
    ``needed_bytes`` of free memory.
    """
    driver_version = cuda.require_driver()
    try:
        count = int(cuda.call("cudaGetDeviceCount"))
        if not 0 <= index < count:
            there = ", ".join(f"{i} ({_name(cuda, i)})" for i in range(count))
            raise BackendError(f"there is no GPU {index}", f"choose one of: {there}")
        make_current(cuda, index)
        attributes = cuda.runtime.cudaDeviceAttr
        major, minor, integrated = (
            int(cuda.call("cudaDeviceGetAttribute", attribute, index))
            for attribute in (
                attributes.cudaDevAttrComputeCapabilityMajor,
                attributes.cudaDevAttrComputeCapabilityMinor,
                attributes.cudaDevAttrIntegrated,
            )
        )
        free, total = (int(nbytes) for nbytes in cuda.call("cudaMemGetInfo"))
        facts = DeviceFacts(
            index,
            _name(cuda, index),
            (major, minor),
            total,
            free,
            bool(integrated),
            driver_version,
            int(cuda.call("cudaRuntimeGetVersion")),
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


def make_current(cuda: Cuda, index: int) -> None:
    """Make GPU ``index`` current in the calling thread, once per thread. Raises CudaError."""
    cuda.call("cudaSetDevice", index)
    cuda.call("cudaFree", 0)  # cudaSetDevice alone creates the context only from CUDA 12 on


def _name(cuda: Cuda, index: int) -> str:
    name: bytes = cuda.call("cudaGetDeviceProperties", index).name
    return name.split(b"\0")[0].decode()
