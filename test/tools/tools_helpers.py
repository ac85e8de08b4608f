"""What several tests of the tools need."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
CAPTURED: dict[str, Any] = {"capture_output": True, "text": True, "check": False}
Command = Callable[..., subprocess.CompletedProcess[str]]


def package_environment() -> dict[str, str]:
    """The environment in which another process imports this checkout."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}


def module_in(folder: Path, module: str, timeout: float) -> Command:
    """Runs ``python -m MODULE ...`` in a folder, as a user would."""

    def run(*arguments: object, env: dict[str, str] | None = None, timeout: float = timeout):
        command = [sys.executable, "-m", module, *map(str, arguments)]
        environment = {**package_environment(), **(env or {})}
        return subprocess.run(command, cwd=folder, env=environment, timeout=timeout, **CAPTURED)

    return run


def called_here(main: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str]) -> Command:
    """The same by a call in this process, which saves starting one."""

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = int(end.code or 0)
        said = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, code, said.out, said.err)

    return run


def assert_refused(result: subprocess.CompletedProcess[str], *words: str) -> None:
    """Exit code 2 and one line on stderr that holds all these words."""
    assert result.returncode == 2, result.stderr
    assert len(result.stderr.splitlines()) == 1, result.stderr
    for word in words:
        assert word in result.stderr


def square_picture(left: int, top: int, width: int = 160, height: int = 120, side: int = 24) -> np.ndarray:
    """A bright square on a dark slope."""
    picture = np.empty((height, width, 3), np.uint8)
    picture[:] = np.linspace(20, 70, width, dtype=np.uint8)[None, :, None]
    picture[top : top + side, left : left + side] = (60, 200, 250)
    return picture


def driver_module(version: int, capability: tuple[int, int], name: str) -> str:
    """Source of a stand-in for ``cuda.bindings.driver`` with one GPU; ``version`` as 12060 for CUDA 12.6."""
    return f"""
from enum import IntEnum
CUDA_VERSION = {version}
class CUdevice_attribute(IntEnum):
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76
def cuDriverGetVersion(): return 0, {version}
def cuInit(flags): return (0,)
def cuDeviceGetCount(): return 0, 1
def cuDeviceGet(index): return 0, index
def cuDeviceGetAttribute(kind, device): return 0, {dict(zip((75, 76), capability, strict=True))}[int(kind)]
def cuDeviceGetName(size, device): return 0, {name.encode()!r} + bytes(size - {len(name)})
"""
