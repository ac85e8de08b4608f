"""`efftam track --page` as a process: the target is drawn on a page, which shows the video to its end."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import aiohttp
import numpy as np
import pytest

pytest.importorskip("aiohttp", reason="the operator's page needs aiohttp: pip install efftam_ros[operator]")
sys.path.insert(0, str(Path(__file__).parents[1] / "operator"))

from tools_helpers import package_environment

from benchmarks.browser import Hands, chromium
from benchmarks.page_client import page
from efftam_ros.core.geometry import Box
from efftam_ros.core.types import Prompt

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


def test_the_target_is_drawn_on_the_first_frame_and_followed_to_the_last(
    start: Start, square_video: Path, tmp_path: Path
):
    process, url = start("track", square_video, "--page", "--json", "t.json", "--out", "o.mp4", "--quiet")

    async def draw() -> tuple[int | None, list[int]]:
        async with page(url) as client:
            frame = (await client.until(lambda: client.frames, 60))[0]
            assert frame.stamp_ns == 0
            await client.send(op="select", id="a", stamp="0", kind="box", box=[40, 30, 24, 24])
            assert (await client.answer("a"))["ok"]
            await client.until(lambda: client.socket.closed, 60)
            return client.socket.close_code, [frame.stamp_ns for frame in client.frames]

    code, stamps = asyncio.run(draw())
    assert process.wait(60) == 0
    frames = json.loads((tmp_path / "t.json").read_text())["frames"]
    assert frames[0]["box"] == pytest.approx([40, 30, 24, 24], abs=4)
    assert frames[-1]["state"] == "TRACKING"
    assert code == 4000
    assert stamps[-1] == int(frames[-1]["stamp_ns"])


def test_the_page_says_that_the_video_is_over(start: Start, square_video: Path):
    with chromium() as browser:
        process, url = start("track", square_video, "--page", "--quiet")
        tab = browser.new_page(viewport={"width": 1280, "height": 800})
        tab.goto(url)
        hands = Hands(tab, (160, 120))
        hands.see()
        hands.drag(40, 30, 64, 54)
        hands.wait_text("#banners", "the video is over")
        assert process.wait(60) == 0
        tab.wait_for_timeout(4000)  # longer than a page waits before it says that there is no link
        (said,) = tab.locator("#banners p").all_inner_texts()
        assert re.fullmatch(
            r"OVERthe video is over; no file was written: --json FILE .* --out FILE\.mp4 .*", said
        )
        assert tab.locator("#state").inner_text() == "OVER"
        assert tab.locator("#detail").inner_text() == "was TRACKING"
        assert tab.locator("#age").inner_text() == "0:01.1 · 12 of 12"
        assert "no file was written" in process.stdout.read()
        assert tab.get_attribute("#view", "data-stamp") == "1100000000"
        hands.drag(40, 30, 64, 54)
        tab.click("#choice-send")
        hands.wait_text("#notices", "the video is over: nothing was sent")


def test_the_overlay_of_the_video_is_not_drawn_on_the_page_s_pictures(
    efftam_here, square_video: Path, tmp_path: Path, monkeypatch
):
    """A page reads the pixels later, on a thread of its own."""
    shown: list[tuple[np.ndarray, np.ndarray]] = []
    one = Mock()
    one.ask.return_value = Prompt(box=Box(40, 30, 24, 24))
    one.show.side_effect = lambda bgr, track, progress: shown.append((bgr, bgr.copy()))

    @contextmanager
    def drawn_page(address, port, token, over):
        assert over == "the video is over; written: o.mp4"
        yield SimpleNamespace(page=one, urls=["http://127.0.0.1:1/"], announcement="open http://127.0.0.1:1/")

    monkeypatch.setattr("efftam_operator.drawn.drawn_page", drawn_page)
    monkeypatch.chdir(tmp_path)
    result = efftam_here("track", square_video, "--page", "--out", "o.mp4", "--quiet")
    assert result.returncode == 0, result.stderr
    assert len(shown) == 12
    assert all(np.array_equal(now, then) for now, then in shown)


def test_a_command_that_is_ended_is_no_link(start: Start, square_video: Path):
    process, url = start("track", square_video, "--page", "--quiet")

    async def look() -> int | None:
        async with page(url) as client:
            await client.until(lambda: client.frames, 60)
            process.terminate()
            await client.until(lambda: client.socket.closed, 60)
            return client.socket.close_code

    assert asyncio.run(look()) == aiohttp.WSCloseCode.GOING_AWAY
    assert process.wait(60) == 130
