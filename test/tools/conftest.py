"""Small real files for the tools: videos, and the command as a process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tools_helpers import CAPTURED, package_environment, square_picture

from efftam_ros.interop.video import NS
from efftam_ros.tools.cli import main
from efftam_ros.tools.common.video import VideoWriter

Efftam = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def efftam(tmp_path: Path) -> Efftam:
    """Runs `python -m efftam_ros ...` in an empty folder, as a user would."""

    def run(*arguments: object, env: dict[str, str] | None = None, timeout: float = 100):
        return subprocess.run(
            [sys.executable, "-m", "efftam_ros", *map(str, arguments)],
            cwd=tmp_path,
            env={**package_environment(), **(env or {})},
            timeout=timeout,
            **CAPTURED,
        )

    return run


@pytest.fixture
def efftam_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Efftam:
    """The same in this process, which saves starting one: for requests that are refused at once."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        code = main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, code, said.out, said.err)

    return run


@pytest.fixture
def square_video(tmp_path: Path) -> Path:
    """12 frames at 10 fps; the square of 24 px starts at (40, 30) and moves by (3, 2) px per frame."""
    path = tmp_path / "square.mp4"
    with VideoWriter(path, 160, 120, 10.0) as writer:
        for i in range(12):
            writer.write(square_picture(40 + 3 * i, 30 + 2 * i), i * NS // 10)
    return path
