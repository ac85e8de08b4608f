"""Small real files for the tools: videos, and the command as a process."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tools_helpers import Command, called_here, module_in, square_picture

from efftam_ros.images.source import NS
from efftam_ros.tools.cli import main
from efftam_ros.tools.common.video import VideoWriter


@pytest.fixture
def efftam(tmp_path: Path) -> Command:
    """Runs `python -m efftam_ros ...` in an empty folder."""
    return module_in(tmp_path, "efftam_ros", timeout=100)


@pytest.fixture
def efftam_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """The same in this process, for requests that are refused at once."""
    monkeypatch.chdir(tmp_path)
    return called_here(main, capsys)


@pytest.fixture
def square_video(tmp_path: Path) -> Path:
    """12 frames at 10 fps; the square of 24 px starts at (40, 30) and moves by (3, 2) px per frame."""
    path = tmp_path / "square.mp4"
    with VideoWriter(path, 160, 120, 10.0) as writer:
        for i in range(12):
            writer.write(square_picture(40 + 3 * i, 30 + 2 * i), i * NS // 10)
    return path


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of Python packages with a libcupti of two versions, the older of which can't be loaded."""
    folder = tmp_path_factory.mktemp("packages")
    library = folder / "nvidia" / "cu13" / "lib" / "libcupti.so.13"
    library.parent.mkdir(parents=True)
    library.with_name("libcupti.so.12").write_text("not a library")
    source = Path(__file__).with_name("stub_cupti.cpp")
    subprocess.run(["g++", "-shared", "-fPIC", "-o", library, source], check=True, timeout=60)
    return folder
