"""`efftam demo --live` as a person starts and ends it."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="the page needs aiohttp")

from benchmarks.page_client import PageClient, page


def children_of(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def is_active(client: PageClient) -> bool:
    """The tracker answers what it is asked now."""
    return any(one["tracker"] == "alive" for one in client.messages("status")[-1:])


def states(client: PageClient) -> set[str]:
    return {target["state"] for track in client.messages("track") for target in track["targets"]}


def test_one_command_shows_the_clip_as_a_camera_and_one_interrupt_ends_all_of_it(ros):
    words = [sys.executable, "-m", "efftam_ros", "demo", "--live", "--port", "0"]
    # Interrupts reach it also where these tests run in the background, which ignores them.
    demo = subprocess.Popen(
        words,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert demo.stderr is not None
    try:
        printed = ""
        while not (found := re.search(r"(http://127\.0\.0\.1:\d+/)#point=(0\.\d+),(0\.\d+)", printed)):
            line = demo.stderr.readline()
            assert line, printed
            printed += line
        url, x, y = found.group(1), float(found.group(2)), float(found.group(3))
        nodes = children_of(demo.pid)
        assert len(nodes) == 3

        async def follow() -> None:
            async with page(url) as client:
                await client.until(lambda: client.frames, 120)
                await client.until(lambda: is_active(client), 120)
                at = {"kind": "points", "points": [[640 * x, 360 * y]], "labels": [1]}
                stamp = str(client.frames[-1].stamp_ns)
                await client.send(op="select", id="a", stamp=stamp, target=0, **at)
                assert (await client.answer("a"))["ok"]
                await client.until(lambda: "TRACKING" in states(client), 60)

        asyncio.run(follow())
        demo.send_signal(signal.SIGINT)
        assert demo.wait(60) == 130
        assert not any(is_alive(pid) for pid in nodes)
    finally:
        demo.kill()
        demo.wait()
        demo.stderr.close()


def test_without_ros_one_line_says_what_to_do(tmp_path: Path):
    code = (
        "import sys; sys.modules['rclpy'] = None\n"
        "from efftam_ros.tools.cli import main\nsys.exit(main(['demo', '--live']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "setup_env" in line
    assert "--page" in line
