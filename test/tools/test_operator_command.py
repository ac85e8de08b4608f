"""The page over a run on disk and over a video that is being tracked: the commands as processes."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest

pytest.importorskip("aiohttp", reason="the operator's page needs aiohttp: pip install efftam_ros[operator]")
sys.path.insert(0, str(Path(__file__).parents[1] / "operator"))

from page_client import page
from runs import number_in, write_run, write_video
from tools_helpers import package_environment

from efftam_ros.operator.recorded.run import open_recording

Start = Callable[..., tuple["subprocess.Popen[str]", str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """``start(*arguments)``: a command that serves a page on a free port; the process and the address."""
    started = []

    def run(*arguments: object) -> tuple[subprocess.Popen[str], str]:
        process = subprocess.Popen(
            [sys.executable, "-u", "-m", "efftam_ros", *map(str, arguments), "--port", "0"],
            cwd=tmp_path,
            env=package_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        said = ""
        while not (found := re.search(r"open (http\S+)", said)):
            line = process.stdout.readline()
            assert line, f"the command ended: {said}"
            said += line
        return process, found.group(1)

    yield run
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_two_runs_are_played_image_by_image(start: Start, tmp_path: Path):
    write_video(tmp_path / "v.mp4", 40)
    write_run(tmp_path / "a.json", "v.mp4", "1222222222")
    write_run(tmp_path / "b.json", "v.mp4", "1222233334")
    process, url = start("operator", "--play", "a.json", "--compare", "b.json")

    async def look() -> None:
        async with page(url) as client:
            timeline = (await client.until(lambda: client.messages("timeline")))[0]
            assert [r["name"] for r in timeline["runs"]] == ["a", "b"]
            assert timeline["runs"][1]["states"].startswith("1222233334")
            await client.send(op="seek", stamp=timeline["stamps"][33])
            frame = (await client.until(lambda: client.frames))[-1]
            picture = cv2.imdecode(np.frombuffer(frame.payload, np.uint8), cv2.IMREAD_COLOR)
            assert number_in(picture) == 33

    asyncio.run(look())
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0


def test_the_target_is_drawn_on_the_first_frame_and_followed(
    start: Start, square_video: Path, tmp_path: Path
):
    process, url = start("track", square_video, "--page", "--json", "t.json", "--out", "o.mp4", "--quiet")

    async def draw() -> None:
        async with page(url) as client:
            frame = (await client.until(lambda: client.frames, 60))[0]
            assert frame.stamp_ns == 0
            await client.send(op="select", id="a", stamp="0", kind="box", box=[40, 30, 24, 24])
            assert (await client.answer("a"))["ok"]
            tracked = await client.until(
                lambda: [m for m in client.messages("track") if m["targets"][0]["state"] == "TRACKING"], 60
            )
            assert tracked[0]["targets"][0]["box"] is not None

    asyncio.run(draw())
    assert process.wait(60) == 0
    frames = json.loads((tmp_path / "t.json").read_text())["frames"]
    assert frames[0]["box"] == pytest.approx([40, 30, 24, 24], abs=4)
    assert frames[-1]["state"] == "TRACKING"
    (run,) = open_recording(tmp_path / "t.json").runs
    assert [box.stamp_ns for box in run.boxes if box] == [int(f["stamp_ns"]) for f in frames]
    assert [box.reason for box in run.boxes if box] == [f["reason"] for f in frames]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["--play"]),
        (["--play", "nothing.json"], ["nothing.json"]),
        (["--play", "empty"], ["0 .json files"]),
        (["--play", "v.json", "--port", "70000"], ["port", "65535"]),
        (["--play", "v.json", "--token", "short"], ["token", "5 characters"]),
        (["--play", "v.json", "--address", "203.0.113.1"], ["203.0.113.1"]),
        (["--play", "v.json", "--video", "w.mp4"], ["w.mp4"]),
    ],
)
def test_bad_input_is_one_line_and_code_2(tmp_path: Path, monkeypatch, capsys, arguments, words):
    from efftam_ros.tools.cli import main

    (tmp_path / "empty").mkdir()
    write_run(tmp_path / "v.json", write_video(tmp_path / "v.mp4", 3).name, "12")
    monkeypatch.chdir(tmp_path)
    assert main(["operator", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    for word in words:
        assert word in line
