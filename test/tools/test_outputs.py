"""Output files are whole or not touched, whatever ends the command: a signal, a kill, a full disk."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import av
import cv2
import numpy as np
import pytest
from bag_helpers import NS, START_NS, image, read_messages, write_bag
from tools_helpers import assert_refused, package_environment, square_picture

from efftam_ros.tools.common.outputs import Output, check_outputs, write_text
from efftam_ros.tools.common.video import VideoWriter

IMAGES = 60
BOX = ("--box", "40,30,24,24")


def started(folder: Path, *arguments: str, file_bytes: int | None = None) -> subprocess.Popen[str]:
    """The command in this folder; ``file_bytes``: no file may become larger, as on a full disk."""

    def prepare() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # ignored in the background
        if file_bytes is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))

    return subprocess.Popen(
        [sys.executable, "-m", "efftam_ros", *arguments],
        cwd=folder,
        env=package_environment() | {"PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=prepare,
    )


def last_line(process: subprocess.Popen[str]) -> str:
    """What a command that is refused says, in one line."""
    _, stderr = process.communicate(timeout=100)
    assert (process.returncode, len(stderr.splitlines())) == (2, 1), stderr
    return stderr


def wait_for(folder: Path, pattern: str, process: subprocess.Popen[str]) -> None:
    while not list(folder.glob(pattern)):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)


def left_over(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if ".part" in path.name]


@pytest.fixture
def bag(tmp_path: Path) -> Path:
    """More images than are answered before a signal comes."""
    pictures = (square_picture(40 + i % 20, 30) for i in range(IMAGES))
    times = (START_NS + i * NS // 30 for i in range(IMAGES))
    return write_bag(
        tmp_path / "bag",
        [("/image", t, image(picture, t)) for t, picture in zip(times, pictures, strict=True)],
    )


def test_a_replay_that_is_ended_or_killed_leaves_nothing_in_the_way_of_the_next(bag: Path, tmp_path: Path):
    arguments = ["replay", str(bag), *BOX, "--out", "tracked"]
    for number, told in ((signal.SIGTERM, (130, "efftam replay: interrupted\n")), (signal.SIGKILL, (-9, ""))):
        process = started(tmp_path, *arguments)
        wait_for(tmp_path, ".tracked.*/tracked/*", process)
        process.send_signal(number)
        _, stderr = process.communicate(timeout=60)
        assert (process.returncode, stderr) == told
        assert not (tmp_path / "tracked").exists()
        assert number == signal.SIGKILL or left_over(tmp_path) == []
    process = started(tmp_path, *arguments)
    assert process.wait(100) == 0, process.stderr.read()
    assert len(read_messages(tmp_path / "tracked", "/bbox")) == IMAGES


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_what_was_tracked_is_there_after_the_command_was_ended(tmp_path: Path, number):
    slow = tmp_path / "frames"
    slow.mkdir()
    for i in range(400):  # more than is done when the signal comes
        cv2.imwrite(str(slow / f"{i}.png"), square_picture(40 + i % 40, 30))
    arguments = ["track", str(slow), *BOX, "--json", "t.json", "--out", "o.mp4"]
    process = started(tmp_path, *arguments)
    wait_for(tmp_path, ".o.*.part.mp4", process)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (130, "efftam track: interrupted\n")
    report = json.loads((tmp_path / "t.json").read_text())
    assert not report["complete"]
    with av.open(str(tmp_path / "o.mp4")) as container:
        assert 0 < container.streams.video[0].frames == len(report["frames"]) < 400
    assert left_over(tmp_path) == []


@pytest.mark.parametrize(("storage", "room"), [("mcap", 0), ("mcap", 20_000), ("sqlite3", 20)])
def test_a_replay_onto_a_full_disk_is_one_line_and_leaves_nothing(
    bag: Path, tmp_path: Path, storage: str, room: int
):
    words = ("replay", str(bag), *BOX, "--out", "tracked", "--storage", storage)
    assert last_line(started(tmp_path, *words, file_bytes=room))
    assert not (tmp_path / "tracked").exists()
    assert left_over(tmp_path) == []


@pytest.mark.parametrize("room", [0, 500])
def test_a_full_disk_leaves_the_old_files_and_is_one_line(square_video: Path, tmp_path: Path, room: int):
    old_video = square_video.read_bytes()
    (tmp_path / "o.mp4").write_bytes(old_video)
    for name in ("t.json", "r.rrd"):
        (tmp_path / name).write_text("[1]")
    for option, name in (("--json", "t.json"), ("--out", "o.mp4"), ("--rerun", "r.rrd")):
        words = ("track", str(square_video), *BOX, option, name)
        said = last_line(started(tmp_path, *words, file_bytes=room))
        assert "no space left" in said
        assert name in said
    assert {(tmp_path / name).read_text() for name in ("t.json", "r.rrd")} == {"[1]"}
    assert (tmp_path / "o.mp4").read_bytes() == old_video
    assert left_over(tmp_path) == []


def test_a_full_disk_of_the_video_does_not_cost_the_json_on_another(square_video: Path, tmp_path: Path):
    """Linux's device that is always full; the overlay fails at its first byte, its last or between."""
    (tmp_path / "o.mp4").symlink_to("/dev/full")
    words = ("track", str(square_video), *BOX, "--json", "t.json", "--out", "o.mp4")
    assert "o.mp4" in last_line(started(tmp_path, *words))
    report = json.loads((tmp_path / "t.json").read_text())
    assert report["frames"]
    assert not report["complete"]


@pytest.mark.parametrize("command", [["track", "square.mp4", "--json", "-"], ["doctor", "--json"]])
def test_standard_output_that_is_full_is_one_line(place: Path, command: list[str]):
    words = [*command, *BOX] if command[0] == "track" else command
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "efftam_ros", *words],
            cwd=place,
            env=package_environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert "no space left" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_video_is_at_its_place_once_it_is_whole(tmp_path: Path):
    path = tmp_path / "v.mp4"
    with VideoWriter(path, 64, 48, 10.0) as writer:
        for i in range(5):
            writer.write(np.full((48, 64, 3), 50 * i, np.uint8), i * NS // 10)
        assert not path.exists()
    with av.open(str(path)) as container:
        assert container.streams.video[0].frames == 5
    assert left_over(tmp_path) == []


def test_links_and_pipes_stay_what_they_are(tmp_path: Path):
    (tmp_path / "real").mkdir()
    link = tmp_path / "link.json"
    link.symlink_to(tmp_path / "real" / "t.json")
    write_text(link, json.dumps({}))
    assert link.is_symlink()
    assert (tmp_path / "real" / "t.json").read_text() == "{}"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_text(pipe, "text")
    assert os.read(reader, 10) == b"text"
    os.close(reader)


@pytest.fixture
def place(square_video: Path, tmp_path: Path) -> Path:
    """A folder with a video, a link to it, a mask, a folder of images and a data set."""
    (tmp_path / "link.mp4").symlink_to(square_video)
    (tmp_path / "frames" / "more").mkdir(parents=True)
    for path in ("mask.png", "frames/0.png", "frames/1.png"):
        cv2.imwrite(str(tmp_path / path), np.full((120, 160), 255, np.uint8))
    sequence = tmp_path / "data" / "one"
    sequence.mkdir(parents=True)
    (sequence / "boxes.csv").write_text("frame,x,y,w,h\n0,1,1,9,9\n1,1,1,9,9\n")
    shutil.copy(square_video, sequence / "video.mp4")
    return tmp_path


DESTROYS = {
    "json over the video": ["track", "square.mp4", *BOX, "--json", "square.mp4"],
    "overlay over the video": ["track", "square.mp4", *BOX, "--out", "square.mp4"],
    "a link to the video": ["track", "square.mp4", *BOX, "--out", "link.mp4"],
    "a video given as a link": ["track", "link.mp4", *BOX, "--out", "./square.mp4"],
    "json over the mask": ["track", "square.mp4", "--mask", "mask.png", "--json", "mask.png"],
    "two outputs": ["track", "square.mp4", *BOX, "--json", "o.mp4", "--out", "./o.mp4"],
    "an image of the folder": ["track", "frames", *BOX, "--json", "frames/0.png"],
    "within the folder": ["track", "frames", *BOX, "--json", "frames/more/t.json"],
    "a bag over its video": ["bag", "square.mp4", "--out", "square.mp4"],
    "two outputs of eval": ["eval", "data", "--json", "b.png", "--plot", "b.png"],
    "a result of the ground truth": ["eval", "data", "--json", "data/one/boxes.csv"],
}


@pytest.mark.parametrize("case", DESTROYS)
def test_an_output_that_would_destroy_an_input_or_another_output_is_refused(
    case: str, place: Path, efftam_here
):
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    assert_refused(efftam_here(*DESTROYS[case]), f"{DESTROYS[case][-2]} {Path(DESTROYS[case][-1])}")
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == before


CAN_NOT = {
    "no folder": (["bench", "--json", "no/b.json"], ["no does not exist", "no/b.json"]),
    "a plot of no known format": (["eval", "data", "--plot", "x.foo"], ["--plot x.foo", ".png"]),
    "a recording of another kind": (
        ["track", "square.mp4", *BOX, "--rerun", "x.mp4"],
        ["--rerun x.mp4", ".rrd"],
    ),
    "nothing can be written there": (["track", "square.mp4", *BOX, "--out", "/proc/x.mp4"], ["/proc/x.mp4"]),
    "a report without a folder": (["doctor", "--report", "no/r.json"], ["no/r.json", "no does not exist"]),
    "a folder for a file": (["bench", "--json", "frames"], ["--json frames is a folder"]),
    "a file for an export": (
        ["export", "square.mp4", "--config", "efficienttam_ti", "--out", "mask.png"],
        ["--out mask.png is a file"],
    ),
    "a bag without a folder": (["bag", "square.mp4", "--out", "no/bag"], ["no does not exist"]),
}


@pytest.mark.parametrize("case", CAN_NOT)
def test_an_output_that_can_not_be_written_is_refused_before_the_work(case: str, place: Path, efftam_here):
    arguments, words = CAN_NOT[case]
    result = efftam_here(*arguments)
    assert_refused(result, *words)
    assert result.stdout == ""
    assert ".part" not in result.stderr
    assert left_over(place) == []


def test_a_write_that_fails_names_the_file_that_was_asked_for(tmp_path: Path):
    with pytest.raises(FileNotFoundError) as caught:
        write_text(tmp_path / "no" / "t.json", "new")
    assert caught.value.filename == str(tmp_path / "no" / "t.json")


def test_a_device_may_be_every_output(tmp_path: Path):
    check_outputs([Output("--json", Path("/dev/null")), Output("--plot", Path("/dev/null"), "picture")])
    check_outputs([Output("--json", Path("-")), Output("--plot", None, "picture")], [None, tmp_path / "none"])
