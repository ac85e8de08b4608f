"""Commands that install what a back end is missing, by platform."""

from __future__ import annotations

from efftam_ros.tools.doctor.gpu_facts import Facts

JETSON_6_INDEX = "--index-url https://pypi.jetson-ai-lab.io/jp6/cu126"
BUILD_FOR = {"Orin": "87", "Thor": "110", "": "87 (Orin) or 110 (Thor)"}


def install_line(facts: Facts, backend: str) -> str:
    """Commands that install all requirements of a back end, "" when nothing is missing or for the CPU."""
    return "; then ".join(line for line in _lines(facts, backend) if line)


def _lines(facts: Facts, backend: str) -> list[str]:
    if backend.startswith("torch-cuda"):
        return [driver_line(facts), torch_line(facts)]
    if backend in ("onnxruntime-cuda", "onnxruntime-cuda-fp32"):
        return [driver_line(facts), bindings_line(facts), onnxruntime_line(facts)]
    if backend == "onnxruntime-tensorrt":
        return [
            driver_line(facts),
            bindings_line(facts),
            onnxruntime_line(facts),
            tensorrt_line(facts, only_ten=True),
        ]
    if backend in ("tensorrt", "tensorrt-fp32", "tensorrt-int8"):
        return [driver_line(facts), bindings_line(facts), tensorrt_line(facts, only_ten=False)]
    return []


def driver_line(facts: Facts) -> str:
    """How to install a driver, "" when one works."""
    if facts.cuda:
        return ""
    if facts.platform.kind != "desktop":
        return "install JetPack 6.1 or newer with its CUDA: sudo apt install nvidia-jetpack"
    if facts.kernel_driver:
        return "pass the GPU to the container: docker run --gpus all"
    return "install NVIDIA's driver, 580 or newer: sudo ubuntu-drivers install"


def cuda_major(facts: Facts) -> int:
    """CUDA version of packages that fit here: 12, or 13 where the driver supports it or none is installed."""
    if facts.platform.kind == "JetPack 6":
        return 12
    return 12 if facts.cuda and facts.cuda < 13000 else 13


def bindings_line(facts: Facts) -> str:
    """How to install cuda-bindings for the driver, "" when installed."""
    if facts.bindings and not bindings_too_new(facts):
        return ""
    return "pip install 'cuda-bindings>=12.6,<13'"


def bindings_too_new(facts: Facts) -> bool:
    major = facts.bindings.partition(".")[0]
    return bool(facts.cuda) and major.isdigit() and int(major) > int(facts.cuda or 0) // 1000


def onnxruntime_fits(facts: Facts) -> bool:
    """True if the only installed onnxruntime is a CUDA build for this driver with all its libraries."""
    runtime = facts.onnxruntime
    return (
        runtime is not None
        and "CUDA" in runtime.compiled_in
        and len(runtime.packages) < 2
        and (not facts.cuda or (runtime.cuda_major or 0) <= facts.cuda // 1000)
        and not facts.missing_libraries
    )


def onnxruntime_line(facts: Facts) -> str:
    """How to install an onnxruntime for this GPU, "" when installed."""
    if onnxruntime_fits(facts):
        return ""
    out = "pip uninstall -y onnxruntime onnxruntime-gpu && "
    kind, board = facts.platform.kind, facts.platform.board
    if kind == "JetPack 6":
        return f"{out}pip install onnxruntime-gpu {JETSON_6_INDEX} (PyPI has none for its Python 3.10)"
    if kind == "JetPack 7":
        return (
            f"build onnxruntime with CMAKE_CUDA_ARCHITECTURES={BUILD_FOR[board]}: PyPI's wheel installs but "
            "has no code for this GPU"
        )
    if cuda_major(facts) == 12:
        return f"{out}pip install 'onnxruntime-gpu[cuda,cudnn]<1.27' nvidia-cublas-cu12"
    return f"{out}pip install 'onnxruntime-gpu[cuda,cudnn]>=1.27' nvidia-cublas"


def tensorrt_line(facts: Facts, *, only_ten: bool) -> str:
    """How to install TensorRT, "" when installed. ``only_ten``: TensorRT 10, for onnxruntime's provider."""
    ten, eleven = (facts.libraries.get(f"libnvinfer.so.{n}", "absent") == "" for n in (10, 11))
    if only_ten and ten:
        return ""
    if not only_ten and facts.tensorrt and (ten or eleven):
        return ""
    if facts.platform.kind != "desktop":
        return "sudo apt install tensorrt python3-libnvinfer, and a venv made with --system-site-packages"
    return f"pip install 'tensorrt-cu{cuda_major(facts)}{'>=10,<11' if only_ten else '>=10'}'"


def torch_line(facts: Facts) -> str:
    """How to install PyTorch for this driver, "" when installed."""
    if facts.torch_cuda and (not facts.cuda or int(facts.torch_cuda.split(".")[0]) <= facts.cuda // 1000):
        return ""
    if facts.platform.kind == "JetPack 6":
        return f"pip install torch {JETSON_6_INDEX}"
    index = "cu126" if cuda_major(facts) == 12 else "cu130"
    return f"pip install torch --index-url https://download.pytorch.org/whl/{index}"
