"""`efftam demo` without ROS 2: it tracks in its own process, and refuses what can't work."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tools_helpers import CAPTURED, assert_refused, package_environment

from efftam_ros.interop.video import open_video

Demo = Callable[..., "subprocess.CompletedProcess[str]"]
BOX = ("--box", "40,30,24,24")
WITHOUT_ROS = """
import sys
sys.modules["rclpy"] = None
from efftam_ros.tools.cli import main
sys.exit(main(["demo", *sys.argv[1:]]))
"""


@pytest.fixture
def demo(tmp_path: Path) -> Demo:
    """Runs the command in an empty folder, without ROS 2."""

    def run(*arguments: object, code: str = WITHOUT_ROS) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", code, *map(str, arguments)],
            cwd=tmp_path,
            env=package_environment(),
            timeout=100,
            **CAPTURED,
        )

    return run


def test_without_ros_the_clip_is_tracked_in_this_process(demo: Demo, tmp_path: Path):
    done = demo("--frames", "12", "--out", "results", "--quiet")
    assert done.returncode == 0, done.stderr
    assert done.stderr == "the tracker runs in this process: rclpy is not in this environment\n"
    summary, written = done.stdout.splitlines()
    assert summary.startswith("12 frames; whole frame ")
    assert "mean overlap with the truth 0.9" in summary
    assert "0 frames claimed while the target was hidden" in summary
    assert written == "wrote results/overlay.mp4, results/track.json, results/summary.txt"
    assert (tmp_path / "results" / "summary.txt").read_text() == summary + "\n"
    report = json.loads((tmp_path / "results" / "track.json").read_text())
    assert [frame["index"] for frame in report["frames"]] == list(range(12))
    assert (tmp_path / "results" / report["video"]).is_file()
    assert len(list(open_video(tmp_path / "results" / "overlay.mp4").frames())) == 12


def test_an_own_video_is_tracked_from_its_box(demo: Demo, square_video: Path, tmp_path: Path):
    done = demo("square.mp4", *BOX)
    assert done.returncode == 0, done.stderr
    assert "overlap" not in done.stdout
    report = json.loads((tmp_path / "demo_output" / "track.json").read_text())
    assert len(report["frames"]) == 12
    assert report["frames"][-1]["box"] == pytest.approx([73, 52, 24, 24], abs=4)


@pytest.mark.parametrize("given", [("square.mp4",), BOX])
def test_a_video_and_its_box_go_together(demo: Demo, square_video: Path, given: tuple[str, ...]):
    assert_refused(demo(*given), "a video needs --box X,Y,W,H")


def test_a_flight_without_the_checkout_is_told_where_it_flies(demo: Demo, tmp_path: Path):
    code = f"""
import sys
from pathlib import Path
from efftam_ros.tools import demo
demo.__file__ = {str(tmp_path / "lib" / "efftam_ros" / "tools" / "demo.py")!r}
from efftam_ros.tools.cli import main
sys.exit(main(["demo", "--flight"]))
"""
    assert_refused(demo(code=code), "--flight needs the checkout (git clone)")


def test_the_options_of_a_flight_follow_it(demo: Demo):
    assert_refused(demo("--out", "o", "--flight"), "give the options of the flight after --flight")


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
def test_a_bundle_that_is_none_is_told_before_anything_is_written(
    demo: Demo, square_video: Path, tmp_path: Path, bundle: str
):
    assert_refused(demo("square.mp4", *BOX, "--bundle", bundle, "--out", "o"), bundle)
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("frames", ["0", "-3"])
def test_the_number_of_frames_is_checked(demo: Demo, frames: str):
    assert_refused(demo("--frames", frames), f"--frames is {frames}; give 1 or more")
