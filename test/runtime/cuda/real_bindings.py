"""Processes that use the real cuda-bindings: the installed ones, and another version where one is at hand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def versions() -> list[object]:
    """Parameters for `run`."""
    other = os.environ.get("EFFTAM_CUDA_BINDINGS")
    skip = pytest.mark.skipif(
        not other, reason="EFFTAM_CUDA_BINDINGS names no folder with another cuda-bindings unpacked"
    )
    return [pytest.param(None, id="installed"), pytest.param(other, id="other", marks=skip)]


def run(code: str, bindings: str | None) -> str:
    """What ``code`` prints, with the bindings of a folder first."""
    path = [entry for entry in (bindings, str(ROOT), os.environ.get("PYTHONPATH")) if entry]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    done = subprocess.run(
        [sys.executable, "-u", "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
