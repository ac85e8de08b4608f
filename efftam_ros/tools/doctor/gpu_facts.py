"""Gathers drivers, libraries and packages for NVIDIA GPUs."""

from __future__ import annotations

import re
import runpy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from efftam_ros.tools.doctor.isolated import ask
from efftam_ros.tools.doctor.system import Platform, System, platform_of

LIBRARY_SECONDS = 30.0

# Libraries loaded by onnxruntime's CUDA provider, by the CUDA version it was built for.
CUDA_LIBRARIES = {
    12: (
        "libcudart.so.12",
        "libcublasLt.so.12",
        "libcublas.so.12",
        "libcurand.so.10",
        "libcufft.so.11",
        "libcudnn.so.9",
    ),
    13: (
        "libcudart.so.13",
        "libcublasLt.so.13",
        "libcublas.so.13",
        "libcurand.so.10",
        "libcufft.so.12",
        "libcudnn.so.9",
    ),
}
NVINFER = ("libnvinfer.so.10", "libnvinfer.so.11")


@dataclass(frozen=True)
class OnnxRuntime:
    """The installed onnxruntime.

    ``built_for``: CUDA version such as "13.0", "" for a CPU build or if unknown; ``compiled_in``: its
    providers; ``packages``: installed pip packages.
    """

    version: str
    built_for: str
    compiled_in: tuple[str, ...]
    packages: tuple[str, ...]

    @property
    def cuda_major(self) -> int | None:
        return int(self.built_for.partition(".")[0]) if self.built_for else None


@dataclass(frozen=True)
class Facts:
    """Facts about GPU computing on this machine.

    Attributes:
        platform: Kind of machine.
        smi: GPUs listed by nvidia-smi.
        smi_problem: Why nvidia-smi failed, "" when it did not.
        kernel_driver: Version of the loaded driver.
        cuda: CUDA version supported by the driver, 12020 for 12.2.
        driver_problem: Why the driver failed, "" when it did not.
        gpus: GPUs listed by the driver.
        bindings: Version of cuda-bindings.
        onnxruntime: The installed onnxruntime.
        libraries: Why each library does not load, "" when it does.
        tensorrt: Version of the Python module.
        torch: Version of PyTorch.
        torch_cuda: CUDA version that PyTorch was built for, "" for a CPU build.
    """

    platform: Platform
    smi: tuple[str, ...] = ()
    smi_problem: str = ""
    kernel_driver: str = ""
    cuda: int | None = None
    driver_problem: str = ""
    gpus: tuple[str, ...] = ()
    bindings: str = ""
    onnxruntime: OnnxRuntime | None = None
    libraries: Mapping[str, str] = field(default_factory=dict)
    tensorrt: str = ""
    torch: str = ""
    torch_cuda: str = ""

    @property
    def missing_libraries(self) -> tuple[str, ...]:
        wanted = CUDA_LIBRARIES.get(self.onnxruntime.cuda_major or 0, ()) if self.onnxruntime else ()
        return tuple(name for name in wanted if self.libraries.get(name, "not checked"))

    @property
    def cuda_text(self) -> str:
        return "" if self.cuda is None else f"{self.cuda // 1000}.{self.cuda % 1000 // 10}"


def gather(system: System) -> Facts:
    """Gather all facts; libraries are loaded in a separate process."""
    runtime = _onnxruntime(system)
    wanted = [*(CUDA_LIBRARIES.get(runtime.cuda_major or 0, ()) if runtime else ()), *NVINFER]
    requests = [["load", name, [str(path) for path in system.wheel_libraries(name)]] for name in wanted]
    driver, *loaded = ask(system, [["driver"], *requests], LIBRARY_SECONDS)
    smi, smi_problem = _nvidia_smi(system)
    torch, torch_cuda = _torch(system)
    kernel = re.search(r"\b\d+\.\d+(\.\d+)?\b", system.read("/proc/driver/nvidia/version") or "")
    return Facts(
        platform=platform_of(system),
        smi=smi,
        smi_problem=smi_problem,
        kernel_driver=kernel[0] if kernel else "",
        cuda=driver.get("cuda") or None,
        driver_problem=_problem(driver),
        gpus=tuple(driver.get("gpus", ())),
        bindings=system.version("cuda-bindings", "cuda-python") or "",
        onnxruntime=runtime,
        libraries={name: _problem(answer) for name, answer in zip(wanted, loaded, strict=True)},
        tensorrt=_tensorrt(system),
        torch=torch,
        torch_cuda=torch_cuda,
    )


def _problem(answer: Mapping[str, Any]) -> str:
    return str(answer.get("problem") or answer.get("fault") or "")


def _nvidia_smi(system: System) -> tuple[tuple[str, ...], str]:
    command = system.program("nvidia-smi")
    if command is None:
        return (), ""
    query = [command, "--query-gpu=name,driver_version,memory.total,compute_cap", "--format=csv,noheader"]
    answer = system.run(query)
    lines = tuple(line.strip() for line in answer.text.splitlines() if line.strip())
    if answer.code or not lines:
        return (), (answer.error or answer.text).strip().partition("\n")[0] or "no GPU listed"
    return lines, ""


def _onnxruntime(system: System) -> OnnxRuntime | None:
    init = system.module_file("onnxruntime")
    if init is None:
        return None
    folder = init.parent / "capi"
    about = folder / "build_and_package_info.py"
    build = runpy.run_path(str(about)) if about.is_file() else {}
    packages = [name for name in ("onnxruntime", "onnxruntime-gpu") if system.version(name)]
    compiled_in = ["CPU"] + [
        title
        for title, name in (("CUDA", "cuda"), ("TensorRT", "tensorrt"))
        if (folder / f"libonnxruntime_providers_{name}.so").is_file()
    ]
    return OnnxRuntime(
        version=str(build.get("__version__", "unknown version")),
        built_for=str(build.get("cuda_version", "")),
        compiled_in=tuple(compiled_in),
        packages=tuple(packages),
    )


def _tensorrt(system: System) -> str:
    if system.module_file("tensorrt") is None:
        return ""
    return system.version("tensorrt", "tensorrt-cu13", "tensorrt-cu12") or "unknown version"


def _torch(system: System) -> tuple[str, str]:
    """Version and CUDA version, read without importing PyTorch, which takes seconds."""
    init = system.module_file("torch")
    about = None if init is None else init.parent / "version.py"
    if about is None or not about.is_file():
        return "", ""
    build = runpy.run_path(str(about))
    return str(build.get("__version__", "unknown version")), str(build.get("cuda") or "")
