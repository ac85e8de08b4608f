"""scripts/demo refuses what can't succeed before it starts the node."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
from tools_helpers import CAPTURED, ROOT, assert_refused, package_environment

Demo = Callable[..., "subprocess.CompletedProcess[str]"]
BOX = ("--box", "40,30,24,24")


@pytest.fixture
def demo(tmp_path: Path) -> Demo:
    """Runs the demo in an empty folder. A node, if one were started, would leave its log there."""

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(ROOT / "scripts" / "play_demo.py"), *map(str, arguments)],
            cwd=tmp_path,
            env=package_environment(),
            timeout=100,
            **CAPTURED,
        )

    return run


def test_the_video_is_not_replaced_by_the_overlay(demo: Demo, square_video: Path, tmp_path: Path):
    (tmp_path / "dd").mkdir()
    shutil.copy(square_video, tmp_path / "dd" / "overlay.mp4")
    assert_refused(demo("dd/overlay.mp4", *BOX, "--out", "dd"), "dd/overlay.mp4 is the input")
    assert (tmp_path / "dd" / "overlay.mp4").read_bytes() == square_video.read_bytes()
    assert [path.name for path in (tmp_path / "dd").iterdir()] == ["overlay.mp4"]


@pytest.mark.parametrize("folder", ["/proc/demo", "square.mp4", "square.mp4/demo"])
def test_a_folder_that_can_not_be_written_is_one_line(demo: Demo, square_video: Path, folder: str):
    assert_refused(demo("square.mp4", *BOX, "--out", folder), f"--out {folder}")


@pytest.mark.parametrize("bundle", ["nope", "."])
def test_a_bundle_that_is_none_is_told_before_the_node_is_started(
    demo: Demo, square_video: Path, tmp_path: Path, bundle: str
):
    assert_refused(demo("square.mp4", *BOX, "--bundle", bundle, "--out", "o"), "demo: ", bundle)
    assert list((tmp_path / "o").iterdir()) == []


def test_a_node_that_does_not_answer_is_told_with_its_log(
    square_video: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import play_demo

    def times_out(*arguments: object) -> str:
        raise TimeoutError("no answer for image 3 within 30 s")

    monkeypatch.setattr(play_demo, "play", times_out)
    monkeypatch.setattr(play_demo, "running_node", lambda bundle, log: nullcontext())
    monkeypatch.setattr(play_demo.signal, "signal", lambda *arguments: None)
    monkeypatch.setattr(sys, "argv", ["demo", str(square_video), *BOX, "--out", str(tmp_path / "o")])
    assert play_demo.main() == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "no answer for image 3" in line
    assert str(tmp_path / "o" / "node.log") in line


@pytest.mark.parametrize("frames", ["0", "-3"])
def test_the_number_of_frames_is_checked(demo: Demo, frames: str):
    done = demo("--frames", frames, "--out", "o")
    assert done.returncode == 2
    assert f"--frames is {frames}; give 1 or more" in done.stderr
