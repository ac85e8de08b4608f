"""Checks the CUDA and TensorRT libraries that onnxruntime's providers link, before they are loaded."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import io
import mmap
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from efftam_ros.core.errors import BackendError
from efftam_ros.runtime.pipeline import backend_of

PROVIDERS = {"cuda": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider"}
_TITLES = {"cuda": "CUDA", "tensorrt": "TensorRT"}


def load_libraries(ort: Any, provider: str) -> None:
    """Check that ``provider`` ("cuda", "tensorrt") of the onnxruntime module ``ort`` can be loaded.

    onnxruntime itself only logs what is missing and continues without the provider. Raises BackendError:
    provider not compiled in, no driver, or libraries that can't be loaded (all are named).
    """
    title = _TITLES[provider]
    if PROVIDERS[provider] not in ort.get_available_providers():
        raise BackendError(
            f"onnxruntime {ort.__version__} was built without its {title} provider", _install(provider)
        )
    library = provider_library(ort, provider)
    if library is None:
        return
    if not _loads("libcuda.so.1"):
        raise BackendError(
            f"onnxruntime's {title} provider needs an NVIDIA driver: libcuda.so.1 can't be loaded",
            "install the driver, or start the container with --gpus all",
        )
    _preload(ort, provider)
    linked = needed(library)
    if provider == "tensorrt" and (cuda := provider_library(ort, "cuda")) is not None:
        linked += [name for name in needed(cuda) if name not in linked]  # whose allocator it uses
    missing = [name for name in linked if not name.startswith("libonnxruntime") and not _loads(name)]
    if missing:
        raise _libraries_missing(ort, provider, missing)


def provider_library(ort: Any, provider: str) -> Path | None:
    """The provider's shared library inside the onnxruntime package; None where it is built in."""
    path = Path(ort.__file__).parent / "capi" / f"libonnxruntime_providers_{provider}.so"
    return path if path.is_file() else None


def tensorrt_version() -> str:
    """Version number of the TensorRT 10 that is loaded, as TensorRT writes it (101303); "" without one."""
    try:
        return str(ctypes.CDLL("libnvinfer.so.10").getInferLibVersion())
    except (OSError, AttributeError):
        return ""


def needed(library: Path) -> list[str]:
    """Names of the libraries that a 64-bit little-endian ELF library links (its DT_NEEDED entries)."""
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        (table,) = struct.unpack_from("<Q", data, 0x20)
        size, count = struct.unpack_from("<HH", data, 0x36)
        segments = [struct.unpack_from("<IIQQQQ", data, table + i * size) for i in range(count)]
        entries: list[tuple[int, int]] = []
        for kind, _, offset, _, _, length in segments:
            if kind == 2:  # PT_DYNAMIC
                entries = list(struct.iter_unpack("<QQ", data[offset : offset + length]))
        names = next((value for tag, value in entries if tag == 5), 0)  # DT_STRTAB, an address in memory
        for kind, _, offset, address, _, length in segments:
            # PT_LOAD: the position of that address in the file
            if kind == 1 and address <= names < address + length:
                names += offset - address
                break
        starts = [names + value for tag, value in entries if tag == 1]  # DT_NEEDED
        return [data[start : data.find(b"\0", start)].decode() for start in starts]


def architectures(library: Path) -> list[int]:
    """GPU architectures (80, 90, ...) that a library has machine code for, from its CUDA fat binaries."""
    found = set()
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        start = data.find(_FATBIN)
        while start >= 0:
            end = start + 16
            with contextlib.suppress(struct.error):
                header, body = struct.unpack_from("<HQ", data, start + 6)
                found |= set(_machine_code(data, start + header, start + header + body))
                end = start + header + body
            start = data.find(_FATBIN, end)
    return sorted(found)


_FATBIN = struct.pack("<I", 0xBA55ED50)


def _machine_code(data: mmap.mmap, start: int, end: int) -> Iterator[int]:
    while start + 32 <= min(end, len(data)):
        kind, _, header, stored = struct.unpack_from("<HHIQ", data, start)
        if header < 32:
            return
        if kind == 2:
            yield struct.unpack_from("<I", data, start + 28)[0]
        start += header + stored


def _loads(name: str) -> bool:
    with contextlib.suppress(OSError):
        ctypes.CDLL(name)
        return True
    return False


def _preload(ort: Any, provider: str) -> None:
    """Load the libraries of pip packages, which are not on the search path."""
    if hasattr(ort, "preload_dlls"):
        # It prints what it does not find; missing libraries are checked afterwards.
        with contextlib.redirect_stdout(io.StringIO()):
            ort.preload_dlls(directory="")
    if provider == "tensorrt":
        with contextlib.suppress(Exception):
            importlib.import_module("tensorrt")


def _install(provider: str) -> str:
    return backend_of(f"onnxruntime-{provider}").install.here()


def _libraries_missing(ort: Any, provider: str, missing: list[str]) -> BackendError:
    reason = f"onnxruntime {ort.__version__}'s {_TITLES[provider]} provider needs {', '.join(missing)}"
    inference = next((name for name in missing if name.startswith("libnvinfer.so")), None)
    if inference is not None:
        version = int(re.sub(r"\D", "", inference.partition(".so")[2]) or 10)
        other = next((n for n in range(version + 3, 7, -1) if _loads(f"libnvinfer.so.{n}")), None)
        found = ", which can't be loaded" if other is None else f"; TensorRT {other} is installed"
        return BackendError(f"{reason}{found}", f"install TensorRT {version}: {_install(provider)}")
    return BackendError(
        f"{reason}, which can't be loaded",
        f"{_install(provider)}, or put their folder into LD_LIBRARY_PATH",
    )
