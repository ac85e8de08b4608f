"""Benchmarks as processes, on the helpers of the tools' tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
from tools_helpers import Command, called_here, module_in

from benchmarks.__main__ import main
from efftam_ros.runtime.bundle import Bundle, default_bundle


@pytest.fixture
def benchmark(tmp_path: Path) -> Command:
    """Runs `python -m benchmarks ...` in an empty folder."""
    return module_in(tmp_path, "benchmarks", timeout=200)


@pytest.fixture
def benchmark_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """The same in this process."""
    monkeypatch.chdir(tmp_path)
    return called_here(main, capsys)


@pytest.fixture(scope="session")
def shipped() -> Bundle:
    return default_bundle()
