"""The checks of `efftam doctor` on Python packages, the shipped networks, ROS 2 and the machine."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import efftam_ros
from efftam_ros.core.errors import BackendError, InputError, one_line
from efftam_ros.package_files import FAST_DDS, PROFILE_VARIABLES, middleware, package_file
from efftam_ros.packages import OPTIONAL
from efftam_ros.runtime.backends import TABLE, jetson_release, power_mode, text_of
from efftam_ros.runtime.bundle import MANIFEST, default_bundle, file_sha256
from efftam_ros.runtime.identity import read_network
from efftam_ros.tools.doctor.probe import CAPTURED, answer
from efftam_ros.version import __version__


class Finding(NamedTuple):
    """One line of the report.

    ``section``, ``name``: what was checked. ``state``: "ok", "absent" (an optional part is missing), "wrong"
    (missing or misconfigured) or "untried" (the check would take minutes). ``found``: the result, for people.
    ``remedy``: the command or step that corrects it; "" if nothing has to be corrected.
    """

    section: str
    name: str
    state: str
    found: str
    remedy: str = ""


def row(section: str, name: str, found: str, remedy: str = "", state: str = "absent") -> Finding:
    """Return a finding. Its state is "ok" if ``remedy`` is empty, else ``state``."""
    return Finding(section, name, state if remedy else "ok", found, remedy)


PYTHON = "Python"


def python_findings() -> Iterator[Finding]:
    """Yield the findings on the Python packages that every command needs, and on the shipped networks."""
    yield row(PYTHON, "python", f"{platform.python_version()} ({sys.executable})")
    yield row(PYTHON, "efftam_ros", f"{__version__} ({Path(efftam_ros.__file__).parent})")
    for module, pip in (("numpy", "numpy"), ("cv2", "opencv-python-headless")):
        problem = loads(module)
        found = problem or sys.modules[module].__version__
        yield row(PYTHON, module, found, f"pip install {pip}" if problem else "", "wrong")
    both = [name for name in ("onnxruntime", "onnxruntime-gpu") if version(name)]
    if len(both) > 1:
        found = f"{' and '.join(both)} are both installed and overwrite each other"
        remedy = next(row for row in TABLE if row.gpu).install.here()
        yield Finding(PYTHON, "onnxruntime", "wrong", found, remedy)
    try:
        folder = default_bundle().folder
        found = f"{folder.name}, sha256 of {MANIFEST} {file_sha256(folder / MANIFEST)[:16]}"
        yield row(PYTHON, "network", found)
    except InputError as error:
        yield Finding(PYTHON, "network", "wrong", str(error), "install the package again")
    try:
        manifest, content = read_network()
        size = f"{len(content) / 1e6:.2f} MB, describes how a target looks by {manifest['size']} numbers"
        yield row(PYTHON, "identity network", f"{size}; the parameter identity turns it off")
    except BackendError as error:
        yield Finding(PYTHON, "identity network", "wrong", error.reason, error.remedy)


def tool_findings(extra: str | None = None) -> Iterator[Finding]:
    """Yield the findings on optional packages, which single commands and nodes need. Nothing is imported.

    ``extra``: only the packages of this pip extra; None: all.
    """
    for package in OPTIONAL:
        if extra not in (None, package.extra):
            continue
        is_there = importlib.util.find_spec(package.module) is not None
        found = version(package.pip) or "unknown version" if is_there else f"needed by {package.purpose}"
        yield row("tools", package.pip, found, "" if is_there else package.install)


def version(distribution: str) -> str:
    """Return the version of an installed pip package; "" if it is not installed."""
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(distribution)
    return ""


def loads(module: str) -> str:
    """Import a module, and return the error's text; "" if the import succeeds."""
    try:
        importlib.import_module(module)
        return ""
    except Exception as error:  # a broken binary package may raise anything
        return one_line(error)


ROS = "ROS 2"
SHM, ENOUGH_SHM_MB = "/dev/shm", 64
"""Fast DDS passes images through /dev/shm. A few publishers of 720p images need less free space than this,
MB."""


def ros_findings() -> Iterator[Finding]:
    """Yield the findings on ROS 2, its packages and its middleware."""
    distro = os.environ.get("ROS_DISTRO", "<distro>")
    remedies = wheel_remedies() if has_ros_wheels() else ros_remedies(distro)
    for module, found in (
        ("rclpy", f"ROS_DISTRO {distro}"),
        ("efftam_ros.msg", "messages are built"),
        ("launch_ros", "launch files"),
        ("cv_bridge", "image encodings that only cv_bridge can convert"),
        ("vision_msgs", "topic detections"),
    ):
        problem = loads(module)
        yield row(ROS, module, problem or found, remedies[module] if problem else "")
    yield fastdds_profile()
    if middleware().startswith(FAST_DDS):
        yield from _shared_memory()


def has_ros_wheels() -> bool:
    """Return whether ROS 2 is installed as Python wheels. scripts/setup_env does this if there is no other
    ROS 2."""
    spec = importlib.util.find_spec("rclpy")
    return spec is not None and spec.origin is not None and "site-packages" in Path(spec.origin).parts


def ros_remedies(distro: str) -> dict[str, str]:
    """Return the remedy for each missing module if ROS 2 is installed by apt, or not at all.

    ``distro``: name of the ROS distribution.
    """
    apt = f"sudo apt install ros-{distro}-"
    return {
        "rclpy": f"source /opt/ros/{distro}/setup.bash",
        "efftam_ros.msg": "colcon build, then source install/setup.bash",
        "launch_ros": f"{apt}launch-ros, or start efftam_tracker itself",
        "cv_bridge": f"{apt}cv-bridge",
        "vision_msgs": f"{apt}vision-msgs",
    }


def wheel_remedies() -> dict[str, str]:
    """Return the remedy for each missing module if ROS 2 is installed as Python wheels.

    The packages of apt do not work with the wheels, and some modules have no wheel.
    """
    build = "scripts/setup_env, then source .venv/setup.bash"
    return {
        "rclpy": build,
        "efftam_ros.msg": build,
        "launch_ros": "there is no wheel: start the nodes themselves (scripts/efftam_tracker)",
        "cv_bridge": "there is no wheel: publish an encoding of docs/node.md, or install ROS 2",
        "vision_msgs": "there is no wheel: leave publish_detections off, or install ROS 2",
    }


def fastdds_profile() -> Finding:
    """Return the finding on the Fast DDS profile. Without this profile large images get lost."""
    name = "Fast DDS profile"
    values = [(variable, os.environ[variable]) for variable in PROFILE_VARIABLES if os.environ.get(variable)]
    profile = package_file("config/fastdds_images.xml") or "<package>/config/fastdds_images.xml"
    remedy = f"export {PROFILE_VARIABLES[0]}={profile} (for the camera driver too)"
    if not middleware().startswith(FAST_DDS):
        return row(ROS, name, f"not used: the middleware is {middleware()}")
    if not values:
        found = "not set: images above 0.5 MB get lost on Fast DDS (the launch file sets the profile)"
        return row(ROS, name, found, remedy)
    for variable, value in values:
        if not Path(value).is_file():
            return row(ROS, name, f"{variable}={value} does not exist", remedy, "wrong")
    return row(ROS, name, values[0][1])


def _shared_memory() -> Iterator[Finding]:
    """Yield the finding on the free space in /dev/shm; none if there is no such folder."""
    if Path(SHM).is_dir():
        usage = shutil.disk_usage(SHM)
        found = f"{usage.free / 1e6:.0f} of {usage.total / 1e6:.0f} MB free"
        remedy = "fastdds shm clean removes files of killed nodes; in a container: --shm-size=512m"
        yield row(ROS, SHM, found, "" if usage.free >= ENOUGH_SHM_MB * 1e6 else remedy, "wrong")


MACHINE = "machine"
OLDEST_L4T = 36  # oldest supported major version of L4T, which is that of JetPack 6
PACKAGES = ("cuda-bindings", "onnxruntime", "onnxruntime-gpu", "tensorrt", "tensorrt-cu13", "tensorrt-cu12")
"""pip packages whose versions decide which back ends run on a GPU."""
SMI = ("--query-gpu=name,driver_version,memory.total,compute_cap", "--format=csv,noheader")


def environment(root: Path = Path("/")) -> dict[str, Any]:
    """Return the facts that the results of a measurement depend on, as JSON values by name.

    The facts describe hardware, driver, clocks and versions of packages. A fact on a part that does not exist
    is None. ``root``: root of the file system, for tests.
    """
    cpu = re.search(r"^model name\s*:\s*(.+)$", text_of(root / "proc/cpuinfo"), flags=re.M)
    kernel = re.search(r"\b\d+\.\d+(\.\d+)?\b", text_of(root / "proc/driver/nvidia/version"))
    driver = answer("driver", seconds=30)
    smi, smi_problem = _output("nvidia-smi", *SMI)
    return {
        "platform": _platform(root),
        "cpu": cpu[1] if cpu else platform.machine(),
        "cores": os.cpu_count(),
        "gpus": smi.splitlines() or driver.get("gpus", []),
        "smi_problem": smi_problem,
        "driver": kernel[0] if kernel else None,
        "driver_cuda": driver.get("cuda"),
        "driver_problem": driver.get("problem"),
        "driver_remedy": driver.get("remedy"),
        "power_mode": power_mode(root) or None,
        "gpu_clock": gpu_clock(root),
        "python": platform.python_version(),
        "efftam_ros": __version__,
        **{name: version(name) or None for name in PACKAGES},
    }


def machine_findings(facts: dict[str, Any]) -> Iterator[Finding]:
    """Yield the findings on the machine. ``facts``: the result of `environment`."""
    jetson = re.match(r"L4T (\d+)", facts["platform"])
    old = jetson is not None and int(jetson[1]) < OLDEST_L4T
    yield row(MACHINE, "platform", facts["platform"], "install JetPack 6.1 or newer" if old else "", "wrong")
    for line in facts["gpus"]:
        yield row(MACHINE, "NVIDIA GPU", line)
    if facts["smi_problem"] and jetson is None:  # on a Jetson nvidia-smi may fail without a fault
        remedy = "load NVIDIA's driver (reboot after an update) or pass the GPU into the container"
        yield Finding(MACHINE, "nvidia-smi", "wrong", facts["smi_problem"], remedy)
    if problem := facts["driver_problem"]:
        state = "wrong" if facts["driver"] or facts["gpus"] else "absent"
        remedy = facts["driver_remedy"] or "reboot, or reinstall the driver"
        yield Finding(MACHINE, "NVIDIA driver", state, problem, remedy)
    else:
        found = f"{facts['driver'] or 'unknown version'}, supports CUDA {facts['driver_cuda']}"
        yield row(MACHINE, "NVIDIA driver", found)
    for name in ("power_mode", "gpu_clock", *PACKAGES):
        if facts[name]:
            yield row(MACHINE, name.replace("_", " "), facts[name])


def _platform(root: Path) -> str:
    release = jetson_release(root)
    if not release:
        return platform.machine()
    model = text_of(root / "proc/device-tree/model").rstrip("\0\n")
    return f"L4T {'0, unknown release' if release == '0' else release}, {model or 'a Jetson'}"


def gpu_clock(root: Path) -> str | None:
    """Return the range of a Jetson's GPU clock, for people; None if there is no such clock.

    The clock follows the load, unless the command jetson_clocks has fixed it.
    """
    for folder in sorted((root / "sys/class/devfreq").glob("*gpu*")):
        low, high = (text_of(folder / f"{end}_freq").strip() for end in ("min", "max"))
        if low.isdigit() and high.isdigit():
            megahertz = f"{int(low) // 10**6} to {int(high) // 10**6} MHz"
            return megahertz + ("" if low == high else ", follows the load; sudo jetson_clocks fixes it")
    return None


def _output(program: str, *arguments: str) -> tuple[str, str | None]:
    """Run a program, and return its output and its error.

    The error is None if the program succeeds or is not installed. The output is empty if it fails or is not
    installed.
    """
    if (path := shutil.which(program)) is None:
        return "", None
    try:
        done = subprocess.run([path, *arguments], timeout=20, **CAPTURED)
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", str(error)
    if done.returncode:
        return "", (done.stderr.strip() or done.stdout.strip() or "it fails").splitlines()[0]
    return done.stdout.strip(), None
