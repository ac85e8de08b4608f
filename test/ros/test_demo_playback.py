"""What the demo leaves is a run that the page plays."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed")
pytest.importorskip("aiohttp", reason="the page needs aiohttp")
pytest.importorskip("av", reason="videos need av")
pytest.importorskip("efftam_ros.msg", reason="the messages are not built")

from operator_page import Hands, Page, chromium
from ros_helpers import ROOT

pytestmark = pytest.mark.ros

FRAMES = 24


@pytest.fixture(scope="module")
def demo(ros, tmp_path_factory):
    """The folder of a short demo of the rendered scene, by the real node."""
    folder = tmp_path_factory.mktemp("demo")
    program = str(ROOT / "scripts" / "play_demo.py")
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    subprocess.run(
        [sys.executable, program, "--frames", str(FRAMES), "--out", str(folder)],
        env=os.environ | {"PYTHONPATH": path},
        check=True,
        timeout=120,
        capture_output=True,
    )
    return folder


@pytest.fixture
def url(demo, processes):
    command = [sys.executable, "-u", "-m", "efftam_ros", "operator", "--play", str(demo), "--port", "0"]
    process = processes(command, PYTHONPATH=os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    while not (found := re.search(r"open (http\S+)", process.output)):
        assert process.alive, process.output
    return found.group(1)


def test_every_image_of_the_demo_has_its_answer(demo, url):
    said = json.loads((demo / "track.json").read_text())["frames"]
    page = Page(url)
    try:
        page.wait(lambda: page.messages("timeline"))
        (timeline,) = page.messages("timeline")
        assert len(timeline["stamps"]) == len(said) == FRAMES
        for index in (0, 7, FRAMES - 1):
            page.send(op="seek", stamp=timeline["stamps"][index])
            stamp = int(timeline["stamps"][index])
            page.wait(lambda stamp=stamp: stamp in page.stamps and page.target(stamp))
            target = page.target(stamp)
            assert target["state"] == said[index]["state"]
            assert target["box"] == pytest.approx(said[index]["box"], abs=0.01)
    finally:
        page.close()


def test_the_demo_is_seen_in_a_browser(demo, url):
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 860})
        page.goto(url)
        hands = Hands(page, (1280, 720))
        hands.see()
        hands.keys(*"....")
        hands.wait_text("#time", f"image 4 of {FRAMES}")
        hands.wait_text("#state", json.loads((demo / "track.json").read_text())["frames"][4]["state"])
