"""Report section on the GPU."""

from __future__ import annotations

from collections.abc import Iterator

from efftam_ros.tools.doctor.finding import Finding
from efftam_ros.tools.doctor.gpu_facts import Facts
from efftam_ros.tools.doctor.install import (
    bindings_line,
    bindings_too_new,
    driver_line,
    onnxruntime_line,
    tensorrt_line,
    torch_line,
)

SECTION = "GPU"
# Required by the PTX of the kernels (ISA 8.2).
OLDEST_CUDA = 12020


def gpu_findings(facts: Facts) -> Iterator[Finding]:
    """Findings from the device up to PyTorch: missing and incompatible parts."""
    yield from _platform(facts)
    yield from _devices(facts)
    yield _driver(facts)
    yield _bindings(facts)
    yield from _onnxruntime(facts)
    yield from _libraries(facts)
    yield _tensorrt(facts)
    yield _torch(facts)


def _platform(facts: Facts) -> Iterator[Finding]:
    platform = facts.platform
    if platform.kind == "old JetPack":
        yield Finding(SECTION, "Jetson", "wrong", platform.text, "install JetPack 6.1 or newer")
    elif platform.kind != "desktop":
        yield Finding(SECTION, "Jetson", "ok", platform.text)


def _devices(facts: Facts) -> Iterator[Finding]:
    for line in facts.smi or facts.gpus:
        yield Finding(SECTION, "NVIDIA GPU", "ok", line)
    # On Jetsons nvidia-smi is missing or reports little.
    if facts.smi_problem and facts.platform.kind == "desktop":
        remedy = "load NVIDIA's driver (reboot after an update) or pass the GPU into the container"
        yield Finding(SECTION, "nvidia-smi", "wrong", facts.smi_problem, remedy)


def _driver(facts: Facts) -> Finding:
    name = "NVIDIA driver"
    kernel = facts.kernel_driver or "version unknown"
    if not facts.cuda:
        state = "wrong" if facts.kernel_driver or facts.smi else "absent"
        found = f"{kernel}, but {facts.driver_problem}" if state == "wrong" else "none"
        return Finding(SECTION, name, state, found, f"{driver_line(facts)}; or use the CPU")
    found = f"{kernel}, supports CUDA {facts.cuda_text}"
    if facts.driver_problem:
        return Finding(
            SECTION, name, "wrong", f"{found}, but {facts.driver_problem}", "reboot, or reinstall the driver"
        )
    if facts.cuda < OLDEST_CUDA:
        return Finding(
            SECTION, name, "wrong", f"{found}; needed is 12.2", "update NVIDIA's driver to 535 or newer"
        )
    return Finding(SECTION, name, "ok", found)


def _bindings(facts: Facts) -> Finding:
    name = "cuda-bindings"
    if not facts.bindings:
        return Finding(
            SECTION, name, "absent", "needed by back ends that compute with CUDA", bindings_line(facts)
        )
    if bindings_too_new(facts):
        found = f"{facts.bindings} is newer than the driver's CUDA {facts.cuda_text}"
        return Finding(SECTION, name, "wrong", found, bindings_line(facts))
    return Finding(SECTION, name, "ok", facts.bindings)


def _onnxruntime(facts: Facts) -> Iterator[Finding]:
    name, runtime = "onnxruntime", facts.onnxruntime
    if runtime is None:
        yield Finding(SECTION, name, "wrong", "not installed", "pip install onnxruntime")
        return
    if "CUDA" not in runtime.compiled_in:
        built = "CPU build"
    else:
        built = f"for CUDA {runtime.built_for or '(not stated)'}"
    found = f"{runtime.version}, {built}; compiled in: {', '.join(runtime.compiled_in)}"
    remedy = onnxruntime_line(facts)
    if len(runtime.packages) > 1:
        both = f"{' and '.join(runtime.packages)} are both installed and overwrite each other"
        yield Finding(SECTION, name, "wrong", both, remedy)
    elif facts.cuda and (runtime.cuda_major or 0) > facts.cuda // 1000:
        yield Finding(SECTION, name, "wrong", f"{found}, but the driver supports {facts.cuda_text}", remedy)
    else:
        yield Finding(SECTION, name, "ok", found)


def _libraries(facts: Facts) -> Iterator[Finding]:
    name, runtime = "CUDA libraries", facts.onnxruntime
    if runtime is None or runtime.cuda_major is None:
        return
    remedy = onnxruntime_line(facts)
    for library in facts.missing_libraries:
        reason = facts.libraries.get(library, f"unknown for CUDA {runtime.built_for}")
        yield Finding(SECTION, name, "wrong", f"{library}: {reason}", remedy)
    loaded = [
        library for library, problem in facts.libraries.items() if not problem and "nvinfer" not in library
    ]
    if loaded:
        yield Finding(SECTION, name, "ok", f"load: {', '.join(loaded)}")


def _tensorrt(facts: Facts) -> Finding:
    libraries = {name: problem for name, problem in facts.libraries.items() if "nvinfer" in name}
    loaded = [name for name, problem in libraries.items() if not problem]
    module = f"module {facts.tensorrt}" if facts.tensorrt else "no Python module"
    if not facts.tensorrt and not loaded:
        return Finding(
            SECTION,
            "TensorRT",
            "absent",
            "needed by onnxruntime-tensorrt, tensorrt",
            tensorrt_line(facts, only_ten=True),
        )
    if not loaded:
        reasons = "; ".join(libraries.values())
        return Finding(
            SECTION, "TensorRT", "wrong", f"{module}, but {reasons}", tensorrt_line(facts, only_ten=True)
        )
    found = f"{module}; {', '.join(loaded)} loads"
    if "libnvinfer.so.10" not in loaded:
        found += "; onnxruntime-tensorrt needs libnvinfer.so.10"
    return Finding(SECTION, "TensorRT", "ok", found)


def _torch(facts: Facts) -> Finding:
    if not facts.torch:
        return Finding(SECTION, "torch", "absent", "needed by export, torch back ends", torch_line(facts))
    if not facts.torch_cuda:
        return Finding(SECTION, "torch", "ok", f"{facts.torch}, CPU build")
    found = f"{facts.torch}, for CUDA {facts.torch_cuda}"
    if facts.cuda and int(facts.torch_cuda.split(".")[0]) > facts.cuda // 1000:
        return Finding(
            SECTION,
            "torch",
            "wrong",
            f"{found}, but the driver supports {facts.cuda_text}",
            torch_line(facts),
        )
    return Finding(SECTION, "torch", "ok", found)
