"""The checks of `efftam doctor` on a Jetson: all that a new board needs to build its first engine, in
order."""

from __future__ import annotations

import importlib.util
import platform
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from efftam_ros.runtime.backends import TABLE, jetson_release, power_mode, text_of
from efftam_ros.tools.doctor import checks
from efftam_ros.tools.doctor.checks import OLDEST_L4T, Finding, fastdds_profile, gpu_clock, version

JETSON = "Jetson"
PYTHONS = {36: "3.10", 38: "3.12", 39: "3.12"}
"""Python version of Ubuntu by major version of L4T. TensorRT from apt is built for this Python."""
LIBRARIES = {"CUDA": "cuda-cudart-", "cuDNN": "libcudnn9-cuda-", "TensorRT": "libnvinfer10"}
"""For each library, the beginning of the name of an apt package that belongs to it."""
BUILD_GB = 3.0
"""Memory that an engine build needs, GB: 1 GiB for the builder, CUDA's libraries, and the network on the
CPU."""
SWAP_GB = 4.0  # least swap space, GB, unless twice `BUILD_GB` of memory is free
# GStreamer's plugin for cameras that are connected by CSI.
ARGUS = "usr/lib/aarch64-linux-gnu/gstreamer-1.0/libgstnvarguscamerasrc.so"
row = partial(checks.row, JETSON)


def jetson_findings(root: Path = Path("/")) -> Iterator[Finding]:
    """Yield the findings on a Jetson, in the order in which they should be corrected.

    On another computer the only finding states that this is no Jetson. ``root``: root of the file system, for
    tests.
    """
    yield jetpack(root)
    if not jetson_release(root):
        return
    yield from libraries(root)
    yield python(root, platform.python_version())
    yield tensorrt_module()
    yield onnxruntime_wheel(root)
    yield power(root)
    clock = gpu_clock(root) or "not known"
    is_fixed = "follows" not in clock and clock != "not known"
    yield row("GPU clock", clock.partition(";")[0], "" if is_fixed else "sudo jetson_clocks")
    yield from memory(root)
    yield from cameras(root)
    yield fastdds_profile()._replace(section=JETSON)


def jetpack(root: Path) -> Finding:
    """Return the finding on the version of JetPack."""
    release = jetson_release(root)
    if not release:
        return row("JetPack", "this is not a Jetson", "run this check on the board that flies", "wrong")
    if _l4t(root) < OLDEST_L4T:
        return row("JetPack", f"L4T {release}", "flash JetPack 6.1 or newer", "wrong")
    return row("JetPack", f"{6 if _l4t(root) == OLDEST_L4T else 7} (L4T {release})")


def libraries(root: Path) -> Iterator[Finding]:
    """Yield the findings on NVIDIA's libraries, as dpkg lists them."""
    packages = text_of(root / "var/lib/dpkg/status").split("\n\n")
    for name, start in LIBRARIES.items():
        found = sorted(
            f"{named[1]} {numbered[1]}"
            for text in packages
            if (named := re.search(rf"^Package: ({start}\S*)$", text, flags=re.M))
            and "Status: install ok installed" in text
            and (numbered := re.search(r"^Version: (\S+)$", text, flags=re.M))
        )
        remedy = "" if found else "sudo apt update && sudo apt install nvidia-jetpack"
        yield row(name, ", ".join(found) or "apt has not installed it", remedy, "wrong")


def python(root: Path, here: str) -> Finding:
    """Return the finding on the version of Python. ``here``: the version that runs."""
    wanted = PYTHONS.get(_l4t(root), "")
    if wanted and not here.startswith(f"{wanted}."):
        remedy = f"rm -r .venv && python{wanted} -m venv .venv"
        return row("Python", f"{here}; apt's TensorRT is for {wanted}", remedy, "wrong")
    return row("Python", here)


def tensorrt_module() -> Finding:
    """Return the finding on TensorRT's Python module."""
    if importlib.util.find_spec("tensorrt") is not None:
        return row("import tensorrt", version("tensorrt") or "found")
    remedy = "sudo apt install python3-libnvinfer, and make the venv with --system-site-packages"
    return row("import tensorrt", "the Python module is not found", remedy, "wrong")


def onnxruntime_wheel(root: Path) -> Finding:
    """Return the finding on ONNX Runtime for the GPU."""
    remedy = next(backend for backend in TABLE if backend.gpu).install.here(root)
    gpu, cpu = version("onnxruntime-gpu"), version("onnxruntime")
    if gpu and cpu:
        return row("onnxruntime-gpu", f"onnxruntime {cpu} overwrites onnxruntime-gpu", remedy, "wrong")
    if gpu:
        return row("onnxruntime-gpu", gpu)
    return row("onnxruntime-gpu", "not installed; needed by onnxruntime-cuda alone", remedy)


def power(root: Path) -> Finding:
    """Return the finding on the board's power mode."""
    mode = power_mode(root)
    if not mode:
        return row("power mode", "not known", "sudo nvpmodel -q (a container does not see it)")
    if "MAXN" in mode:
        return row("power mode", mode)
    fastest = re.search(r"POWER_MODEL\s+ID=(\d+)\s+NAME=MAXN", text_of(root / "etc/nvpmodel.conf"))
    remedy = f"sudo nvpmodel -m {fastest[1] if fastest else 0}, before engines are built"
    return row("power mode", f"{mode} is not the fastest", remedy)


def memory(root: Path) -> Iterator[Finding]:
    """Yield the findings on free memory and swap space."""
    free, swap = _gigabytes(root, "MemAvailable"), _gigabytes(root, "SwapTotal")
    remedy = "close programs; without a desktop: sudo systemctl set-default multi-user.target && sudo reboot"
    found = f"{free:.1f} GB free, an engine build takes about {BUILD_GB:g}"
    yield row("memory", found, "" if free >= BUILD_GB else remedy)
    remedy = (
        "sudo fallocate -l 8G /swapfile && sudo chmod 600 /swapfile && sudo mkswap /swapfile"
        " && sudo swapon /swapfile"
    )
    if swap >= SWAP_GB or free >= 2 * BUILD_GB:
        yield row("swap", f"{swap:.1f} GB")
    else:
        yield row("swap", f"{swap:.1f} GB with little memory free", remedy)


def cameras(root: Path) -> Iterator[Finding]:
    """Yield the findings on V4L2 cameras and on the driver of CSI cameras."""
    devices = sorted(path.name for path in (root / "dev").glob("video*"))
    remedy = "plug the camera in, then v4l2-ctl --list-devices; in a container: --device /dev/video0"
    yield row("V4L2 cameras", ", ".join(devices) or "there is no /dev/video*", "" if devices else remedy)
    found, remedy = "nvarguscamerasrc and its daemon", ""
    if not (root / ARGUS).exists():
        found, remedy = "nvarguscamerasrc is not installed", "sudo apt install nvidia-l4t-gstreamer"
    elif not (root / "tmp/argus_socket").exists():
        found = "the daemon of nvarguscamerasrc does not run"
        remedy = "sudo systemctl restart nvargus-daemon (in a container: -v /tmp/argus_socket)"
    yield row("argus (CSI cameras)", found, remedy)


def _l4t(root: Path) -> int:
    return int(jetson_release(root).partition(".")[0] or 0)


def _gigabytes(root: Path, name: str) -> float:
    found = re.search(rf"^{name}:\s+(\d+) kB", text_of(root / "proc/meminfo"), flags=re.M)
    return int(found[1]) * 1024 / 1e9 if found else 0.0
