"""Checks the libraries of onnxruntime's GPU providers, and converts its errors to errors with a remedy."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import io
import mmap
import re
import struct
from pathlib import Path
from typing import Any

from efftam_ros.core.errors import BackendError, InputError
from efftam_ros.runtime.backends import backend_of

PROVIDERS = {"cuda": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider"}
_TITLES = {"cuda": "CUDA", "tensorrt": "TensorRT"}


def load_libraries(ort: Any, provider: str) -> None:
    """Check that ``provider`` ("cuda" or "tensorrt") of the onnxruntime module ``ort`` can be loaded.

    This is needed because onnxruntime itself only logs that a library is missing, and continues without the
    provider. Raises BackendError if onnxruntime was built without the provider, if there is no driver, or if
    libraries can't be loaded. The error names all missing libraries.
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
        # The TensorRT provider uses the memory allocator of the CUDA provider.
        linked += [name for name in needed(cuda) if name not in linked]
    missing = [name for name in linked if not name.startswith("libonnxruntime") and not _loads(name)]
    if missing:
        raise _libraries_missing(ort, provider, missing)


def provider_library(ort: Any, provider: str) -> Path | None:
    """Return the shared library of a provider inside the onnxruntime package.

    None means that onnxruntime has no such file, because the provider is a part of its main library.
    """
    path = Path(ort.__file__).parent / "capi" / f"libonnxruntime_providers_{provider}.so"
    return path if path.is_file() else None


def tensorrt_version() -> str:
    """Return the version of the installed TensorRT 10, such as "101303"; "" if none is installed."""
    try:
        return str(ctypes.CDLL("libnvinfer.so.10").getInferLibVersion())
    except (OSError, AttributeError):
        return ""


def needed(library: Path) -> list[str]:
    """Return the names of the libraries that a shared library links: its DT_NEEDED entries.

    The file must be a 64-bit little-endian ELF file.
    """
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        (table,) = struct.unpack_from("<Q", data, 0x20)
        size, count = struct.unpack_from("<HH", data, 0x36)
        segments = [struct.unpack_from("<IIQQQQ", data, table + i * size) for i in range(count)]
        entries: list[tuple[int, int]] = []
        for kind, _, offset, _, _, length in segments:
            if kind == 2:  # PT_DYNAMIC: the segment with the entries of the dynamic section
                entries = list(struct.iter_unpack("<QQ", data[offset : offset + length]))
        # Tag 5 is DT_STRTAB: the address in memory at which the text of all names begins.
        names = next((value for tag, value in entries if tag == 5), 0)
        for kind, _, offset, address, _, length in segments:
            # Kind 1 is PT_LOAD. The segment that contains the memory address ``names`` gives the position of
            # the names in the file.
            if kind == 1 and address <= names < address + length:
                names += offset - address
                break
        # Tag 1 is DT_NEEDED: the position of a library's name in the text of all names.
        starts = [names + value for tag, value in entries if tag == 1]
        return [data[start : data.find(b"\0", start)].decode() for start in starts]


def _loads(name: str) -> bool:
    with contextlib.suppress(OSError):
        ctypes.CDLL(name)
        return True
    return False


def _preload(ort: Any, provider: str) -> None:
    """Load the libraries that pip packages contain, because these are not on the system's search path."""
    if hasattr(ort, "preload_dlls"):
        # onnxruntime prints a line for each library that it does not find. The output is dropped, because
        # missing libraries are checked afterwards.
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
        install = f"install TensorRT {version}: {_install(provider)}"
        if other is None:
            return BackendError(f"{reason}, which can't be loaded", install)
        replaces = (
            f"make another Python environment, because TensorRT {other} would be replaced; there {install}"
        )
        return BackendError(f"{reason}; TensorRT {other} is installed", replaces)
    return BackendError(
        f"{reason}, which can't be loaded", f"{_install(provider)}, or put their folder into LD_LIBRARY_PATH"
    )


_NO_KERNEL = re.compile(r"no kernel image|NoKernelImageForDevice|CUDA failure 209\b")
_OUT_OF_MEMORY = re.compile(r"out of memory|CUDA failure 2:|MemoryAllocation\b|Failed to allocate memory")
_OLD_DRIVER = re.compile(r"driver version is insufficient|InsufficientDriver|CUDA failure 35\b")
_ON_THE_CPU = re.compile(r"assigned to the default CPU EP|explicitly added the CPU EP")
_NO_CAPTURE = re.compile(
    r"cannot use the graph capture feature|not compatible with requested CUDA Graph", re.I
)
_CUDA_WORDS = re.compile(r"CUDA failure \d+: [^;\n]+")
_PREAMBLE = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : |^/\S+:\d+ .*?\) (?=[A-Z])")
_LONGEST = 300  # limit in characters, because some messages contain a C++ signature of ten lines
_BAD_GRAPHS = ("InvalidGraph", "InvalidProtobuf", "NoSuchFile", "NoModel")


def first_line(error: BaseException) -> str:
    """Return the text of an error of onnxruntime in one line.

    This is CUDA's own message if the text contains one. Otherwise it is the first line, without onnxruntime's
    error code and position in its source.
    """
    text = str(error)
    failure = _CUDA_WORDS.search(text)
    if failure:
        return failure.group().strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return _PREAMBLE.sub("", lines[0])[:_LONGEST] if lines else type(error).__name__


def is_cpu_fallback_error(error: BaseException) -> bool:
    """Return whether this error means that a node, or the whole graph, would run on the CPU."""
    return _ON_THE_CPU.search(str(error)) is not None


def is_capture_error(error: BaseException) -> bool:
    """Return whether this error means that the graph can't be captured as a CUDA graph."""
    return _NO_CAPTURE.search(str(error)) is not None


def known_error(error: BaseException, ort: Any) -> BackendError | None:
    """Return the BackendError for an error that the GPU, its memory or its driver causes; else None."""
    text = str(error)
    if _NO_KERNEL.search(text):
        return BackendError(
            f"onnxruntime {ort.__version__} has no code for this GPU (CUDA error 209, no kernel image)",
            "install a build with code for it (on a Jetson see docs/gpu.md)",
        )
    if _OUT_OF_MEMORY.search(text):
        return BackendError(
            f"GPU memory ran out in onnxruntime ({first_line(error)})",
            "close other programs on the GPU, or use a smaller bundle",
        )
    if _OLD_DRIVER.search(text):
        return BackendError(
            f"the NVIDIA driver is too old for onnxruntime {ort.__version__} ({first_line(error)})",
            "update the driver: CUDA 13 needs 580 or newer, CUDA 12 needs 525 or newer",
        )
    return None


def opening_error(error: BaseException, graph: str, path: Any, ort: Any) -> Exception:
    """Return the exception to raise when onnxruntime can't open a graph.

    Args:
        error: The exception of onnxruntime.
        graph: Name of the graph.
        path: File of the graph.
        ort: The module onnxruntime.

    Returns:
        InputError if the file is damaged or missing, else BackendError.
    """
    if type(error).__name__ in _BAD_GRAPHS:
        return InputError(f"onnxruntime can't load {path}: {first_line(error)}; export the bundle again")
    return known_error(error, ort) or BackendError(
        f"onnxruntime {ort.__version__} can't open {graph} on the GPU ({first_line(error)})",
        "onnxruntime's messages above may give details; update onnxruntime-gpu or take another back end",
    )
