"""Benchmarks as processes, on the helpers of the tools' tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
from tools_helpers import CAPTURED, package_environment

from benchmarks.__main__ import main
from efftam_ros.runtime.bundle import Bundle, default_bundle

Benchmark = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def benchmark(tmp_path: Path) -> Benchmark:
    """Runs `python -m benchmarks ...` in an empty folder."""

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "benchmarks", *map(str, arguments)]
        return subprocess.run(command, cwd=tmp_path, env=package_environment(), timeout=200, **CAPTURED)

    return run


@pytest.fixture
def benchmark_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Benchmark:
    """The same in this process, which saves starting one."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = int(end.code or 0)
        said = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, code, said.out, said.err)

    return run


@pytest.fixture(scope="session")
def shipped() -> Bundle:
    return default_bundle()
