"""Facts about the machine of a measurement: hardware and versions."""

from __future__ import annotations

import os
import platform
import re
from typing import Any

import efftam_ros
from efftam_ros.tools.doctor.gpu_facts import gather
from efftam_ros.tools.doctor.system import System


def environment(system: System) -> dict[str, Any]:
    """CPU, GPUs, driver, power mode (Jetson) and versions; None or an empty list for what is missing."""
    facts = gather(system)
    runtime = facts.onnxruntime
    return {
        "platform": facts.platform.text,
        "cpu": _cpu(system),
        "cores": os.cpu_count(),
        "gpus": list(facts.smi or facts.gpus),
        "driver": facts.kernel_driver or None,
        "driver_cuda": facts.cuda_text or None,
        "power_mode": _power_mode(system),
        "python": platform.python_version(),
        "efftam_ros": efftam_ros.__version__,
        "onnxruntime": runtime.version if runtime else None,
        "onnxruntime_cuda": (runtime.built_for if runtime else "") or None,
        "cuda_bindings": facts.bindings or None,
        "tensorrt": facts.tensorrt or None,
        "torch": facts.torch or None,
        "torch_cuda": facts.torch_cuda or None,
    }


def _cpu(system: System) -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", system.read("/proc/cpuinfo") or "", flags=re.M)
    return found[1] if found else system.machine


def _power_mode(system: System) -> str | None:
    command = system.program("nvpmodel")
    if command is None:
        return None
    answer = system.run([command, "-q"])
    return " ".join(answer.text.split()) if answer.code == 0 else f"unknown: {answer.error.strip()}"
