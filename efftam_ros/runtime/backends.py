"""The table of back ends, the commands that install them, and how a Jetson is recognised."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from efftam_ros.core.config import MAX_TARGETS, CheckedSettings, setting
from efftam_ros.core.errors import InputError, shown

PRECISIONS = ("auto", "fp32", "fp16", "int8")
VERIFY = ("once", "always", "never")


@dataclass(frozen=True)
class Install:
    """Commands that install the libraries of a back end, for four kinds of machine.

    Attributes:
        cuda12: Command for a computer with an NVIDIA driver for CUDA 12 (before version 580).
        cuda13: Command for a computer with an NVIDIA driver for CUDA 13 (from version 580 on).
        jetpack6: Command for a Jetson with JetPack 6.
        jetpack7: Command for a Jetson with JetPack 7.
    """

    cuda12: str
    cuda13: str
    jetpack6: str
    jetpack7: str

    def here(self, root: Path = Path("/")) -> str:
        """Return the command for this machine. Without an NVIDIA driver this is the command for CUDA 13.

        The system's files are read below ``root``.
        """
        release = jetson_release(root)
        if release:
            return self.jetpack6 if int(release.partition(".")[0]) <= 36 else self.jetpack7
        driver = re.search(r" (\d+)\.\d", text_of(root / "proc/driver/nvidia/version"))
        return self.cuda12 if driver and int(driver[1]) < FIRST_DRIVER_OF_CUDA_13 else self.cuda13


@dataclass(frozen=True)
class Backend:
    """A row of `TABLE`: everything that nodes and commands need to know of one back end.

    Attributes:
        name: Name in settings and options.
        opener: The function that opens the back end, as "module:function". For a CPU it makes a `Pipeline`
            from (bundle, threads, max_targets). For a GPU it makes a `GraphOpener` from (bundle, precision,
            facts, stream, engine folder).
        auto: The precision that "auto" stands for. "tf32" is FP32, except that the factors of products may be
            rounded to a mantissa of 10 bits.
        precisions: The precisions that a user can choose besides "auto".
        install: Commands that install the libraries of the back end.
        gpu: Whether the back end needs an NVIDIA GPU.
        engines: Whether the back end runs engines that `efftam build` makes, one set for each precision.
        captured: Whether all kernels of a frame are launched as CUDA graphs.
    """

    name: str
    opener: str
    auto: str
    precisions: tuple[str, ...]
    install: Install
    gpu: bool = True
    engines: bool = False
    captured: bool = False

    def resolved(self, precision: str) -> str:
        """Return the precision that this back end uses for a setting: "tf32", "fp32", "fp16" or "int8".

        Raises InputError if the back end does not offer it.
        """
        if precision == "auto":
            return self.auto
        if precision not in self.precisions:
            raise InputError(
                f"precision {shown(precision)} is not offered by {self.name}; it offers"
                f" {', '.join(('auto', *self.precisions))}"
            )
        return precision

    @property
    def variants(self) -> tuple[str, ...]:
        """The precisions that a user can choose: "auto", and then those that "auto" does not stand for."""
        return ("auto", *(precision for precision in self.precisions if precision != self.auto))


def jetson_release(root: Path = Path("/")) -> str:
    """Return the version of Jetson Linux (L4T), such as "36.4.3"; "" if this machine is no Jetson.

    A container may lack the file with the version. The result is then the major version, "36" or "38", that
    belongs to the running Linux kernel, or "0" if this kernel is not known. The system's files are read below
    ``root``.
    """
    text = text_of(root / "etc/nv_tegra_release")
    if found := re.search(r"R(\d+)(?:.*?REVISION:\s*([\d.]+))?", text):
        return ".".join(filter(None, found.groups()))
    if not text and "nvidia,tegra" not in text_of(root / "proc/device-tree/compatible"):
        return ""
    kernel = text_of(root / "proc/sys/kernel/osrelease")
    return next((l4t for start, l4t in KERNELS_OF_L4T.items() if kernel.startswith(start)), "0")


def power_mode(root: Path = Path("/")) -> str:
    """Return name and number of a Jetson's power mode, such as "25W (1)", or the number alone.

    The result is "" if this machine is no Jetson, or if a container does not contain the file with the mode.
    The system's files are read below ``root``.
    """
    found = re.search(r"pmode:0*(\d+)", text_of(root / "var/lib/nvpmodel/status"))
    if found is None:
        return ""
    name = re.search(rf"POWER_MODEL\s+ID={found[1]}\s+NAME=(\S+)", text_of(root / "etc/nvpmodel.conf"))
    return f"{name[1]} ({found[1]})" if name else found[1]


KERNELS_OF_L4T = {"5.15.": "36", "6.8.": "38"}
FIRST_DRIVER_OF_CUDA_13 = 580
JETSON_6_INDEX = "--index-url https://pypi.jetson-ai-lab.io/jp6/cu126"
BUILD_FOR = {"Orin": "87", "Thor": "110"}
"""By Jetson board, the value of CMAKE_CUDA_ARCHITECTURES with which onnxruntime must be built for it."""
_BINDINGS = "pip install 'cuda-bindings>=12.9.1,<13'"
_REPLACE = "pip uninstall -y onnxruntime onnxruntime-gpu && pip install"
_JETSON_TENSORRT = (
    "sudo apt install tensorrt python3-libnvinfer, and make the venv with --system-site-packages"
)
_ORT = Install(*["pip install onnxruntime"] * 4)
_ORT_CUDA = Install(
    cuda12=f"{_BINDINGS} && {_REPLACE} 'onnxruntime-gpu[cuda,cudnn]<1.27' nvidia-cublas-cu12",
    cuda13=f"{_BINDINGS} && {_REPLACE} 'onnxruntime-gpu[cuda,cudnn]>=1.27' nvidia-cublas",
    jetpack6=f"{_BINDINGS} && {_REPLACE} onnxruntime-gpu {JETSON_6_INDEX}",
    jetpack7="build onnxruntime with CMAKE_CUDA_ARCHITECTURES="
    f"{' or '.join(f'{number} ({board})' for board, number in BUILD_FOR.items())}: PyPI's wheel has no code"
    f" for this GPU; and {_BINDINGS}",
)
_ORT_TENSORRT = Install(
    cuda12=f"{_ORT_CUDA.cuda12} 'tensorrt-cu12>=10,<11'",
    cuda13=f"{_ORT_CUDA.cuda13} 'tensorrt-cu13>=10,<11'",
    jetpack6=f"{_ORT_CUDA.jetpack6}; {_JETSON_TENSORRT}",
    jetpack7=f"{_ORT_CUDA.jetpack7}; {_JETSON_TENSORRT}",
)
_TENSORRT = Install(
    cuda12=f"{_BINDINGS} 'tensorrt-cu12>=10.3' 'onnx>=1.17'",
    cuda13=f"{_BINDINGS} 'tensorrt-cu13>=10.3' 'onnx>=1.17'",
    # ROS 2 of both JetPacks needs NumPy 1, and onnx alone would bring NumPy 2.
    jetpack6=f"{_BINDINGS} 'onnx>=1.17' 'numpy<2'; {_JETSON_TENSORRT}",
    jetpack7=f"{_BINDINGS} 'onnx>=1.17' 'numpy<2'; {_JETSON_TENSORRT}",
)
_RUNTIME = "efftam_ros.runtime"
TABLE = (
    Backend("onnxruntime-cpu", f"{_RUNTIME}.onnxruntime.cpu:OrtPipeline", "fp32", ("fp32",), _ORT, gpu=False),
    Backend(
        "onnxruntime-cuda",
        f"{_RUNTIME}.onnxruntime.gpu:open_cuda",
        "tf32",
        ("fp32",),
        _ORT_CUDA,
        captured=True,
    ),
    # "fp32" is not offered, because TF32 can't be switched off in onnxruntime's TensorRT provider.
    Backend("onnxruntime-tensorrt", f"{_RUNTIME}.onnxruntime.gpu:open_tensorrt", "tf32", (), _ORT_TENSORRT),
    Backend(
        "tensorrt",
        f"{_RUNTIME}.tensorrt.engine_set:open_engines",
        "fp16",
        ("fp16", "fp32", "int8"),
        _TENSORRT,
        engines=True,
        captured=True,
    ),
)
"""All back ends. To add one, add a row here and the module that the row's ``opener`` names."""
BACKENDS = tuple(row.name for row in TABLE)
GPU_BACKENDS = tuple(row.name for row in TABLE if row.gpu)
DEFAULT_BACKEND = BACKENDS[0]
ENGINES = next(row for row in TABLE if row.engines)
"""The back end whose engines `efftam build` makes."""


def backend_of(name: str) -> Backend:
    """Return the row of the back end with this name. Raises InputError if there is none.

    For a name with a precision, such as ``tensorrt-fp16``, the error names the two settings to use instead.
    """
    for row in TABLE:
        if row.name == name:
            return row
    base, _, precision = name.rpartition("-")
    if base in BACKENDS and precision in PRECISIONS:
        raise InputError(f"back end {shown(name)} is not known; give {base} and the precision {precision}")
    raise InputError(f"back end {shown(name)} is not known; choose one of {', '.join(BACKENDS)}")


def function_of(row: Backend) -> Any:
    """Import and return the function that ``row.opener`` names."""
    module, _, function = row.opener.partition(":")
    return getattr(importlib.import_module(module), function)


@dataclass(frozen=True)
class PipelineConfig(CheckedSettings):
    """Settings of how the network is computed.

    They are parameters of the node, options of the commands and arguments of the Python interface.
    """

    bundle: str = setting("", "folder of the network bundle; empty: the default network")
    backend: str = setting(
        DEFAULT_BACKEND, "back end that runs the network", choices=BACKENDS, check=backend_of
    )
    precision: str = setting(
        "auto", "precision of the network, as far as the back end offers it", choices=PRECISIONS
    )
    max_targets: int = setting(
        1, "most targets at once; each needs memory, on a GPU too", within=(1, MAX_TARGETS)
    )
    threads: int = setting(
        0, "CPU threads of the network; 0: one per physical core, at most four", within=(0, 256)
    )
    verify: str = setting(
        "once",
        "check of a GPU back end at start-up, frames against the CPU's: once until engines, libraries or the"
        " network change, always, or never",
        choices=VERIFY,
    )
    zero_copy: bool = setting(
        False, "the GPU reads images from the host's memory; for boards where gpu_check found it faster"
    )


def text_of(path: Path) -> str:
    """Return the content of a text file, or "" if it can't be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
