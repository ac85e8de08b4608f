"""Report section on the machine: board, NVIDIA GPU, driver, and the versions of what computes on it."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import efftam_ros
from efftam_ros.runtime.pipeline import text_of
from efftam_ros.tools.doctor.finding import Finding
from efftam_ros.tools.doctor.packages import version
from efftam_ros.tools.doctor.probe import CAPTURED, answer

SECTION = "machine"
OLDEST_L4T = 36  # JetPack 6
PACKAGES = ("cuda-bindings", "onnxruntime", "onnxruntime-gpu", "tensorrt", "tensorrt-cu13", "tensorrt-cu12")
"""pip packages whose versions decide what runs on a GPU."""
SMI = ("--query-gpu=name,driver_version,memory.total,compute_cap", "--format=csv,noheader")


def environment(root: Path = Path("/")) -> dict[str, Any]:
    """What a measurement depends on, as JSON values; None for what is not there."""
    cpu = re.search(r"^model name\s*:\s*(.+)$", text_of(root / "proc/cpuinfo"), flags=re.M)
    kernel = re.search(r"\b\d+\.\d+(\.\d+)?\b", text_of(root / "proc/driver/nvidia/version"))
    driver = answer("driver", seconds=30)
    smi, smi_problem = _output("nvidia-smi", *SMI)
    mode, _ = _output("nvpmodel", "-q")
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
        "power_mode": " ".join(mode.split()) or None,
        "gpu_clock": _gpu_clock(root),
        "python": platform.python_version(),
        "efftam_ros": efftam_ros.__version__,
        **{name: version(name) or None for name in PACKAGES},
    }


def machine_findings(facts: dict[str, Any]) -> Iterator[Finding]:
    """Findings on what `environment` returned."""
    jetson = re.match(r"L4T (\d+)", facts["platform"])
    old = jetson is not None and int(jetson[1]) < OLDEST_L4T
    ending = (
        ("wrong", facts["platform"], "install JetPack 6.1 or newer") if old else ("ok", facts["platform"])
    )
    yield Finding(SECTION, "platform", *ending)
    for line in facts["gpus"]:
        yield Finding(SECTION, "NVIDIA GPU", "ok", line)
    if facts["smi_problem"] and jetson is None:  # on a Jetson it reports little
        remedy = "load NVIDIA's driver (reboot after an update) or pass the GPU into the container"
        yield Finding(SECTION, "nvidia-smi", "wrong", facts["smi_problem"], remedy)
    if problem := facts["driver_problem"]:
        state = "wrong" if facts["driver"] or facts["gpus"] else "absent"
        remedy = f"{facts['driver_remedy'] or 'reboot, or reinstall the driver'}; or use the CPU"
        yield Finding(SECTION, "NVIDIA driver", state, problem, remedy)
    else:
        found = f"{facts['driver'] or 'unknown version'}, supports CUDA {facts['driver_cuda']}"
        yield Finding(SECTION, "NVIDIA driver", "ok", found)
    for name in ("power_mode", "gpu_clock", *PACKAGES):
        if facts[name]:
            yield Finding(SECTION, name.replace("_", " "), "ok", facts[name])


def _platform(root: Path) -> str:
    release = text_of(root / "etc/nv_tegra_release")
    if not release:
        return platform.machine()
    found = re.search(r"R(\d+).*?REVISION:\s*([\d.]+)", release)
    model = text_of(root / "proc/device-tree/model").rstrip("\0\n")
    return f"L4T {'.'.join(found.groups()) if found else '0, unknown release'}, {model or 'a Jetson'}"


def _gpu_clock(root: Path) -> str | None:
    """Range of a Jetson's GPU clock, which follows the load unless jetson_clocks fixes it."""
    for folder in sorted((root / "sys/class/devfreq").glob("*gpu*")):
        low, high = (text_of(folder / f"{end}_freq").strip() for end in ("min", "max"))
        if low.isdigit() and high.isdigit():
            megahertz = f"{int(low) // 10**6} to {int(high) // 10**6} MHz"
            return megahertz + ("" if low == high else ", follows the load; sudo jetson_clocks fixes it")
    return None


def _output(program: str, *arguments: str) -> tuple[str, str | None]:
    """What a program writes, and its error where it fails; nothing where it is not installed."""
    if (path := shutil.which(program)) is None:
        return "", None
    try:
        done = subprocess.run([path, *arguments], timeout=20, **CAPTURED)
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", str(error)
    if done.returncode:
        return "", (done.stderr.strip() or done.stdout.strip() or "it fails").splitlines()[0]
    return done.stdout.strip(), None
