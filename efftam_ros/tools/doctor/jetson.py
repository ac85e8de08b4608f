"""Section of the report for a Jetson: what a bare board lacks for its first engine, in order."""

from __future__ import annotations

import importlib.util
import platform
import re
from collections.abc import Iterator
from pathlib import Path

from efftam_ros.runtime.backends import TABLE, jetson_release, power_mode, text_of
from efftam_ros.tools.doctor.checks import OLDEST_L4T, Finding, fastdds_profile, gpu_clock, version

JETSON = "Jetson"
PYTHONS = {36: "3.10", 38: "3.12", 39: "3.12"}
"""Of Ubuntu, for which apt's TensorRT is built, by L4T."""
LIBRARIES = {"CUDA": "cuda-cudart-", "cuDNN": "libcudnn9-cuda-", "TensorRT": "libnvinfer10"}
"""Start of the name of a package that each comes with."""
BUILD_GB = 3.0
"""For an engine build: 1 GiB working memory of the builder, CUDA's libraries, the network on the CPU."""
SWAP_GB = 4.0
ARGUS = "usr/lib/aarch64-linux-gnu/gstreamer-1.0/libgstnvarguscamerasrc.so"


def jetson_findings(root: Path = Path("/")) -> Iterator[Finding]:
    """The rows; off a Jetson only that it is none."""
    yield jetpack(root)
    if not jetson_release(root):
        return
    yield from libraries(root)
    yield python(root, platform.python_version())
    yield tensorrt_module()
    yield onnxruntime_wheel(root)
    yield power(root)
    yield clocks(root)
    yield memory(root)
    yield swap(root)
    yield v4l2(root)
    yield argus(root)
    yield fastdds_profile()._replace(section=JETSON)


def jetpack(root: Path) -> Finding:
    release = jetson_release(root)
    if not release:
        return Finding(JETSON, "JetPack", "wrong", "this is not a Jetson", "run it on the board that flies")
    if _l4t(root) < OLDEST_L4T:
        return Finding(JETSON, "JetPack", "wrong", f"L4T {release}", "flash JetPack 6.1 or newer")
    return Finding(JETSON, "JetPack", "ok", f"{6 if _l4t(root) == OLDEST_L4T else 7} (L4T {release})")


def libraries(root: Path) -> Iterator[Finding]:
    packages = text_of(root / "var/lib/dpkg/status").split("\n\n")
    for name, start in LIBRARIES.items():
        found = sorted(
            f"{named[1]} {numbered[1]}"
            for text in packages
            if (named := re.search(rf"^Package: ({start}\S*)$", text, flags=re.M))
            and "Status: install ok installed" in text
            and (numbered := re.search(r"^Version: (\S+)$", text, flags=re.M))
        )
        remedy = "sudo apt update && sudo apt install nvidia-jetpack"
        ending = ("ok", ", ".join(found)) if found else ("wrong", "apt has not installed it", remedy)
        yield Finding(JETSON, name, *ending)


def python(root: Path, here: str) -> Finding:
    wanted = PYTHONS.get(_l4t(root), "")
    if wanted and not here.startswith(f"{wanted}."):
        found = f"{here}; apt's TensorRT is for {wanted}"
        return Finding(JETSON, "Python", "wrong", found, f"rm -r .venv && python{wanted} -m venv .venv")
    return Finding(JETSON, "Python", "ok", here)


def tensorrt_module() -> Finding:
    if importlib.util.find_spec("tensorrt") is not None:
        return Finding(JETSON, "import tensorrt", "ok", version("tensorrt") or "found")
    remedy = "sudo apt install python3-libnvinfer, and make the venv with --system-site-packages"
    return Finding(JETSON, "import tensorrt", "wrong", "the Python module is not found", remedy)


def onnxruntime_wheel(root: Path) -> Finding:
    remedy = next(row for row in TABLE if row.gpu).install.here(root)
    gpu, cpu = version("onnxruntime-gpu"), version("onnxruntime")
    if gpu and not cpu:
        return Finding(JETSON, "onnxruntime-gpu", "ok", gpu)
    found = f"onnxruntime {cpu} overwrites it" if gpu else "not installed; needed by onnxruntime-cuda alone"
    return Finding(JETSON, "onnxruntime-gpu", "wrong" if gpu else "absent", found, remedy)


def power(root: Path) -> Finding:
    mode = power_mode(root)
    if not mode:
        remedy = "sudo nvpmodel -q (a container does not see it)"
        return Finding(JETSON, "power mode", "absent", "not known", remedy)
    if "MAXN" in mode:
        return Finding(JETSON, "power mode", "ok", mode)
    fastest = re.search(r"POWER_MODEL\s+ID=(\d+)\s+NAME=MAXN", text_of(root / "etc/nvpmodel.conf"))
    remedy = f"sudo nvpmodel -m {fastest[1] if fastest else 0}, before engines are built"
    return Finding(JETSON, "power mode", "absent", f"{mode} is not the fastest", remedy)


def clocks(root: Path) -> Finding:
    found = gpu_clock(root) or "not known"
    if "follows" in found or found == "not known":
        return Finding(JETSON, "GPU clock", "absent", found.partition(";")[0], "sudo jetson_clocks")
    return Finding(JETSON, "GPU clock", "ok", found)


def memory(root: Path) -> Finding:
    free = _gigabytes(root, "MemAvailable")
    found = f"{free:.1f} GB free, an engine build takes about {BUILD_GB:g}"
    if free >= BUILD_GB:
        return Finding(JETSON, "memory", "ok", found)
    remedy = "close programs; without a desktop: sudo systemctl set-default multi-user.target && sudo reboot"
    return Finding(JETSON, "memory", "absent", found, remedy)


def swap(root: Path) -> Finding:
    there, free = _gigabytes(root, "SwapTotal"), _gigabytes(root, "MemAvailable")
    if there >= SWAP_GB or free >= 2 * BUILD_GB:
        return Finding(JETSON, "swap", "ok", f"{there:.1f} GB")
    remedy = (
        "sudo fallocate -l 8G /swapfile && sudo chmod 600 /swapfile && sudo mkswap /swapfile"
        " && sudo swapon /swapfile"
    )
    return Finding(JETSON, "swap", "absent", f"{there:.1f} GB with little memory free", remedy)


def v4l2(root: Path) -> Finding:
    devices = sorted(path.name for path in (root / "dev").glob("video*"))
    if devices:
        return Finding(JETSON, "V4L2 cameras", "ok", ", ".join(devices))
    remedy = "plug it in, then v4l2-ctl --list-devices; in a container: --device /dev/video0"
    return Finding(JETSON, "V4L2 cameras", "absent", "there is no /dev/video*", remedy)


def argus(root: Path) -> Finding:
    if not (root / ARGUS).exists():
        remedy = "sudo apt install nvidia-l4t-gstreamer"
        return Finding(JETSON, "argus (CSI cameras)", "absent", "nvarguscamerasrc is not installed", remedy)
    if not (root / "tmp/argus_socket").exists():
        remedy = "sudo systemctl restart nvargus-daemon (in a container: -v /tmp/argus_socket)"
        return Finding(JETSON, "argus (CSI cameras)", "absent", "its daemon does not run", remedy)
    return Finding(JETSON, "argus (CSI cameras)", "ok", "nvarguscamerasrc and its daemon")


def _l4t(root: Path) -> int:
    return int(jetson_release(root).partition(".")[0] or 0)


def _gigabytes(root: Path, name: str) -> float:
    found = re.search(rf"^{name}:\s+(\d+) kB", text_of(root / "proc/meminfo"), flags=re.M)
    return int(found[1]) * 1024 / 1e9 if found else 0.0
