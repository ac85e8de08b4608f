"""Say what is installed, what can run here, what is missing and the line that mends it.

Exit code 0 when the default back end can run, else 1.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import efftam_ros
from efftam_ros.core.contract import InputRefused, Pipeline
from efftam_ros.core.geometry import Box, View
from efftam_ros.core.types import Image, Prompt
from efftam_ros.runtime.pipeline import BACKENDS, DEFAULT_BACKEND, open_pipeline
from efftam_ros.runtime.unavailable import BackendUnavailable
from efftam_ros.tools.package_files import package_file

# Fast DDS shares images through /dev/shm; below this a few publishers of 720p images fill it.
ENOUGH_SHM_MB = 64


@dataclass(frozen=True)
class Finding:
    """One line of the page. ``state``: "ok", "absent" (optional, not there) or "wrong" (needed or set
    wrongly)."""

    section: str
    name: str
    state: str
    found: str
    remedy: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="findings as JSON")


def run(args: argparse.Namespace) -> int:
    findings = list(examine())
    runs = any(f.section == "back ends" and f.name == DEFAULT_BACKEND and f.state == "ok" for f in findings)
    if args.json:
        print(json.dumps({"runs": runs, "findings": [asdict(f) for f in findings]}, indent=1))
    else:
        _print(findings)
        verdict = "can run" if runs else "can NOT run"
        print(f"\nThe default back end ({DEFAULT_BACKEND}) {verdict} here.")
    return 0 if runs else 1


def examine() -> Iterator[Finding]:
    """All findings, in the order of the page."""
    yield from _python()
    yield from _backends()
    yield from _tools()
    yield from _ros()
    yield from _gpu()


def _python() -> Iterator[Finding]:
    version = platform.python_version()
    supported = sys.version_info >= (3, 10)
    yield Finding(
        "Python",
        "python",
        "ok" if supported else "wrong",
        f"{version} ({sys.executable})",
        "" if supported else "install Python 3.10 or newer",
    )
    yield Finding(
        "Python", "efftam_ros", "ok", f"{efftam_ros.__version__} ({Path(efftam_ros.__file__).parent})"
    )
    yield _importable("Python", "numpy", "numpy", needed=True)
    yield _importable("Python", "OpenCV", "cv2", needed=True, package="opencv-contrib-python-headless")
    onnxruntime = _importable("Python", "onnxruntime", "onnxruntime", needed=True)
    yield onnxruntime
    if onnxruntime.state == "ok":
        providers = importlib.import_module("onnxruntime").get_available_providers()
        yield Finding("Python", "built into onnxruntime", "ok", ", ".join(providers))


def _backends() -> Iterator[Finding]:
    """Opens the shipped bundle in every back end: only what really loads counts."""
    for backend in BACKENDS:
        try:
            pipeline = open_pipeline(None, backend)
        except BackendUnavailable as problem:
            state = "wrong" if backend == DEFAULT_BACKEND else "absent"
            yield Finding("back ends", backend, state, problem.reason, problem.remedy)
        except InputRefused as problem:
            yield Finding("back ends", backend, "wrong", str(problem), "install the package again")
        else:
            with closing(pipeline):
                _one_frame(pipeline)
            yield Finding("back ends", backend, "ok", f"runs {pipeline.spec.name}")


def _one_frame(pipeline: Pipeline) -> None:
    image = Image.from_array(np.zeros((90, 160, 3), np.uint8))
    pipeline.encode(image, View.full(image.width, image.height, pipeline.spec.image_side))
    pipeline.decode(Prompt(box=Box(40, 30, 60, 40)))


def _tools() -> Iterator[Finding]:
    for name, module, package, purpose in (
        ("PyAV", "av", "av", "track, eval: reading and writing videos"),
        ("rosbags", "rosbags", "rosbags", "replay: bags without ROS"),
        ("tqdm", "tqdm", "tqdm", "progress bars"),
        ("matplotlib", "matplotlib", "matplotlib", "eval --plot, bench --plot"),
        ("huggingface_hub", "huggingface_hub", "huggingface_hub", "fetch"),
        ("torch", "torch", "torch", "export, back end torch"),
        ("onnx", "onnx", "onnx", "export"),
        ("cuda-python", "cuda.bindings", "cuda-python", "back ends on the GPU"),
        ("tensorrt", "tensorrt", "tensorrt", "back end tensorrt"),
    ):
        yield _present(name, module, package, purpose)


def _ros() -> Iterator[Finding]:
    section = "ROS 2"
    rclpy = _loads("rclpy")
    distro = os.environ.get("ROS_DISTRO", "")
    if rclpy is None:
        yield Finding(section, "rclpy", "ok", f"ROS_DISTRO {distro or 'not set'}")
    else:
        yield Finding(
            section,
            "rclpy",
            "absent",
            rclpy,
            "source /opt/ros/<distro>/setup.bash, or run ./scripts/demo for wheels",
        )
    messages = _loads("efftam_ros.msg")
    if messages is None:
        yield Finding(section, "messages of efftam_ros", "ok", "built")
    else:
        yield Finding(
            section,
            "messages of efftam_ros",
            "absent",
            messages,
            "colcon build, then source install/setup.bash",
        )
    for module, purpose, remedy in (
        (
            "launch_ros",
            "launch files",
            "ros2 launch is not in the wheels: start scripts/efftam_tracker instead",
        ),
        (
            "cv_bridge",
            "images (else our own conversion)",
            f"apt install ros-{distro or '<distro>'}-cv-bridge",
        ),
        ("vision_msgs", "topic detections", f"apt install ros-{distro or '<distro>'}-vision-msgs"),
    ):
        problem = _loads(module)
        found = purpose if problem is None else f"{purpose}: {problem}"
        yield Finding(
            section, module, "ok" if problem is None else "absent", found, "" if problem is None else remedy
        )
    yield fastdds_profile()
    yield _shared_memory()


def fastdds_profile() -> Finding:
    """Whether the profile without which Fast DDS loses images is set, and its file there."""
    section = "ROS 2"
    names = ("FASTRTPS_DEFAULT_PROFILES_FILE", "FASTDDS_DEFAULT_PROFILES_FILE")
    values = {name: os.environ[name] for name in names if os.environ.get(name)}
    profile = package_file("config/fastdds_images.xml") or "<package>/config/fastdds_images.xml"
    remedy = f"export {names[0]}={profile} (for the camera driver too)"
    other = os.environ.get("RMW_IMPLEMENTATION", "")
    if other and "fastrtps" not in other:
        return Finding(section, "Fast DDS profile", "ok", f"not used: RMW_IMPLEMENTATION is {other}")
    if not values:
        found = "not set: images above 0.5 MB get lost on Fast DDS (the launch file sets it)"
        return Finding(section, "Fast DDS profile", "absent", found, remedy)
    missing = [f"{name}={value}" for name, value in values.items() if not Path(value).is_file()]
    if missing:
        return Finding(section, "Fast DDS profile", "wrong", f"{missing[0]} does not exist", remedy)
    return Finding(section, "Fast DDS profile", "ok", next(iter(values.values())))


def _shared_memory() -> Finding:
    section = "ROS 2"
    shm = Path("/dev/shm")
    if not shm.is_dir():
        return Finding(section, "/dev/shm", "absent", "not there; images go through UDP", "run on Linux")
    usage = shutil.disk_usage(shm)
    size_mb, free_mb = usage.total / 1e6, usage.free / 1e6
    enough = free_mb >= ENOUGH_SHM_MB
    return Finding(
        section,
        "/dev/shm",
        "ok" if enough else "wrong",
        f"{free_mb:.0f} of {size_mb:.0f} MB free",
        "" if enough else "in a container: docker run --shm-size=512m, or --ipc=host",
    )


def _gpu() -> Iterator[Finding]:
    tegra = Path("/etc/nv_tegra_release")
    if tegra.is_file():
        yield Finding("GPU", "Jetson", "ok", tegra.read_text(errors="replace").partition("\n")[0])
    command = shutil.which("nvidia-smi")
    if command is None:
        yield Finding(
            "GPU", "NVIDIA driver", "absent", "no nvidia-smi", "install NVIDIA's driver, or use the CPU"
        )
        return
    query = [command, "--query-gpu=name,driver_version,memory.total,compute_cap", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        yield Finding(
            "GPU", "NVIDIA driver", "wrong", f"nvidia-smi failed: {error}", "reinstall NVIDIA's driver"
        )
        return
    lines = [line for line in answer.stdout.splitlines() if line.strip()]
    if answer.returncode or not lines:
        reason = (answer.stderr or answer.stdout).strip().partition("\n")[0] or "no GPU listed"
        yield Finding(
            "GPU", "NVIDIA driver", "wrong", reason, "load NVIDIA's driver or pass the GPU into the container"
        )
    for line in lines:
        yield Finding("GPU", "NVIDIA GPU", "ok", line)


def _importable(section: str, name: str, module: str, *, needed: bool, package: str = "") -> Finding:
    try:
        version = getattr(importlib.import_module(module), "__version__", "unknown version")
    except Exception as error:  # a broken binary package raises what it likes
        state = "wrong" if needed else "absent"
        return Finding(section, name, state, _one_line(error), f"pip install {package or module}")
    return Finding(section, name, "ok", str(version))


def _present(name: str, module: str, package: str, purpose: str) -> Finding:
    """Whether a package is installed, without the seconds that importing some of them takes."""
    try:
        found = importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        found = False
    if not found:
        return Finding("tools", name, "absent", f"needed by {purpose}", f"pip install {package}")
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        version = "unknown version"
    return Finding("tools", name, "ok", version)


def _loads(module: str) -> str | None:
    """None when a module imports, else why not."""
    try:
        importlib.import_module(module)
    except Exception as error:  # as above
        return _one_line(error)
    return None


def _one_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _print(findings: list[Finding]) -> None:
    marks = {"ok": "ok", "absent": "--", "wrong": "!!"}
    width = max(len(f.name) for f in findings)
    section = ""
    for finding in findings:
        if finding.section != section:
            section = finding.section
            print(f"{section}" if finding is findings[0] else f"\n{section}")
        print(f"  {marks[finding.state]}  {finding.name.ljust(width)}  {finding.found}")
        if finding.remedy:
            print(f"      {' ' * width}  -> {finding.remedy}")
