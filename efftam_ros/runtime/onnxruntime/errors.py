"""Translates onnxruntime's error texts to errors that name the remedy."""

from __future__ import annotations

import re
from typing import Any

from efftam_ros.core.errors import BackendError, InputError
from efftam_ros.runtime.onnxruntime.libraries import architectures, provider_library

_NO_KERNEL = re.compile(r"no kernel image|NoKernelImageForDevice|CUDA failure 209\b")
_OUT_OF_MEMORY = re.compile(r"out of memory|CUDA failure 2:|MemoryAllocation\b|Failed to allocate memory")
_OLD_DRIVER = re.compile(r"driver version is insufficient|InsufficientDriver|CUDA failure 35\b")
_ON_THE_CPU = re.compile(r"assigned to the default CPU EP|explicitly added the CPU EP")
_NO_CAPTURE = re.compile(
    r"cannot use the graph capture feature|not compatible with requested CUDA Graph", re.I
)
_CUDA_WORDS = re.compile(r"CUDA failure \d+: [^;\n]+")
_PREAMBLE = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : |^/\S+:\d+ .*?\) (?=[A-Z])")
_LONGEST = 300  # characters: some messages repeat a C++ signature of ten lines
_BAD_GRAPHS = ("InvalidGraph", "InvalidProtobuf", "NoSuchFile", "NoModel")


def first_line(error: BaseException) -> str:
    """The text of an error in one line: CUDA's message where there is one, else the first line, without
    onnxruntime's error code and source location."""
    text = str(error)
    failure = _CUDA_WORDS.search(text)
    if failure:
        return failure.group().strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return _PREAMBLE.sub("", lines[0])[:_LONGEST] if lines else type(error).__name__


def is_cpu_fallback_error(error: BaseException) -> bool:
    """Whether a session could not be opened because a node, or the whole graph, would run on the CPU."""
    return _ON_THE_CPU.search(str(error)) is not None


def is_capture_error(error: BaseException) -> bool:
    """Whether a session could not be opened because its graph can't be captured."""
    return _NO_CAPTURE.search(str(error)) is not None


def known_error(error: BaseException, ort: Any) -> BackendError | None:
    """The BackendError for an error whose cause is this machine; None for any other."""
    text = str(error)
    if _NO_KERNEL.search(text):
        library = provider_library(ort, "cuda")
        codes = ", ".join(f"sm_{code}" for code in architectures(library)) if library else ""
        return BackendError(
            f"onnxruntime {ort.__version__} has no code for this GPU (CUDA error 209, no kernel image"
            f"{f'; it has {codes}' if codes else ''})",
            "install a build that has (on a Jetson see docs/gpu.md)",
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
    """The error to raise when a graph can't be opened: InputError for a damaged file, else BackendError."""
    if type(error).__name__ in _BAD_GRAPHS:
        return InputError(f"onnxruntime can't load {path}: {first_line(error)}; export it again")
    return known_error(error, ort) or BackendError(
        f"onnxruntime {ort.__version__} can't open {graph} on the GPU ({first_line(error)})",
        "its own messages above may say more; update onnxruntime-gpu or take another back end",
    )
