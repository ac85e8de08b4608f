"""`efftam demo` tracks its clip, and refuses what can't work."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tools_helpers import CAPTURED, assert_refused, package_environment

from efftam_ros.images.video import open_video

Demo = Callable[..., "subprocess.CompletedProcess[str]"]
DEMO = "import sys; from efftam_ros.tools.cli import main; sys.exit(main(['demo', *sys.argv[1:]]))"


@pytest.fixture
def demo(tmp_path: Path) -> Demo:
    """Runs the command in an empty folder."""

    def run(*arguments: object, code: str = DEMO) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", code, *map(str, arguments)],
            cwd=tmp_path,
            env=package_environment(),
            timeout=100,
            **CAPTURED,
        )

    return run


def test_the_clip_is_tracked_and_compared_with_its_boxes(demo: Demo, tmp_path: Path):
    done = demo("--frames", "12", "--out", "results", "--quiet")
    assert done.returncode == 0, done.stderr
    tracked, compared, written = done.stdout.splitlines()
    assert tracked.startswith("12 frames, mean ms: whole frame ")
    assert compared.startswith("mean overlap with the truth 0.9")
    assert compared.endswith("0 frames claimed while the target was hidden")
    assert written == "wrote results/overlay.mp4, results/track.json"
    report = json.loads((tmp_path / "results" / "track.json").read_text())
    assert [frame["index"] for frame in report["frames"]] == list(range(12))
    assert (tmp_path / "results" / report["video"]).is_file()
    assert len(list(open_video(tmp_path / "results" / "overlay.mp4").frames())) == 12


def test_with_its_twin_there_are_two_targets_from_where_that_is_in_sight(demo: Demo, tmp_path: Path):
    done = demo("--twin", "--frames", "8", "--out", "results", "--quiet")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1].startswith("mean overlap with the truth 0.9")
    report = json.loads((tmp_path / "results" / "track.json").read_text())
    assert [frame["index"] for frame in report["frames"]] == list(range(36, 44))
    for frame in report["frames"]:
        first, second = frame["targets"]
        assert (first["id"], second["id"], first["measured"], second["measured"]) == (0, 1, True, True)
        assert second["box"][1] > first["box"][1] + 100  # it comes from below


@pytest.mark.parametrize("folder", ["/proc/demo", "square.mp4", "square.mp4/demo"])
def test_a_folder_that_can_not_be_written_is_one_line(demo: Demo, square_video: Path, folder: str):
    assert_refused(demo("--out", folder), f"--out {folder}")


@pytest.mark.parametrize("bundle", ["nope", "."])
def test_a_bundle_that_is_none_is_told_before_anything_is_written(demo: Demo, tmp_path: Path, bundle: str):
    assert_refused(demo("--bundle", bundle, "--out", "o"), bundle)
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("frames", ["0", "-3"])
def test_the_number_of_frames_is_checked_before_anything_is_written(demo: Demo, tmp_path: Path, frames: str):
    assert_refused(demo("--frames", frames), f"--frames is {frames}; it must be at least 1")
    assert list(tmp_path.iterdir()) == []
