"""`efftam demo` plays its clip to the real node where ROS 2 is there."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed")
pytest.importorskip("av", reason="videos need av")
pytest.importorskip("efftam_ros.msg", reason="the messages are not built")

from ros_helpers import ROOT
from support.clip import clip

from efftam_ros.core.geometry import Box, iou
from efftam_ros.interop.video import open_video

pytestmark = pytest.mark.ros

FRAMES = 24


def demo(folder, *arguments: str) -> subprocess.CompletedProcess:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", "efftam_ros", "demo", "--quiet", "--out", str(folder), *arguments],
        env=os.environ | {"PYTHONPATH": path},
        timeout=120,
        capture_output=True,
        text=True,
    )


def test_every_image_goes_to_the_node_and_comes_back_with_the_car(tmp_path):
    done = demo(tmp_path, "--frames", str(FRAMES))
    assert done.returncode == 0, done.stderr
    assert done.stderr == "the images go to the node efftam_tracker over the middleware\n"
    assert f"{FRAMES} frames; image sent to bbox received" in done.stdout
    frames = json.loads((tmp_path / "track.json").read_text())["frames"]
    assert [frame["index"] for frame in frames] == list(range(FRAMES))
    for frame, (_, box) in zip(frames, clip(FRAMES), strict=True):
        assert iou(Box(*frame["box"]), box) > 0.6
    assert "ACQUIRING -> TRACKING" in (tmp_path / "node.log").read_text()
    assert len(list(open_video(tmp_path / "overlay.mp4").frames())) == FRAMES


def test_a_node_that_does_not_answer_is_told_with_its_log(tmp_path):
    code = """
import sys
from efftam_ros.tools import demo
demo.node_command = lambda *_: [sys.executable, "-c", "import time; time.sleep(60)"]
import efftam_ros.ros.playback.frame_player as player
wait = player.Player._wait
player.Player._wait = lambda self, done, what, seconds: wait(self, done, what, 0.5)
from efftam_ros.tools.cli import main
sys.exit(main(["demo", "--quiet", "--out", sys.argv[1]]))
"""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": path},
        timeout=120,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "no subscriber on the image topic within 0.5 s" in done.stderr
    assert str(tmp_path / "node.log") in done.stderr
    assert "Traceback" not in done.stderr
