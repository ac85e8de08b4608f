"""No home folder, pipes, descriptions of streams, secrets in addresses, little memory: one line each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from free_ports import free_port
from support.streams import running
from tools_helpers import assert_refused

from efftam_ros.core.config import expanded
from efftam_ros.core.errors import InputError, one_line, safe_address, shown
from efftam_ros.images.camera import Camera, CameraOptions, is_live, open_source
from efftam_ros.tools.cli import explain, main

BOX = ("--box", "40,30,24,24")

# What a user may give, and what may be shown of it. The secret is always "hunter2".
ADDRESSES = {
    "rtsp://pilot:hunter2@10.0.0.2:554/live": "rtsp://***@10.0.0.2:554/live",
    "rtsp://pilot:hun@hunter2@10.0.0.2/live": "rtsp://***@10.0.0.2/live",
    "rtsp://pilot:hunter2/x@10.0.0.2/live": "rtsp://***",
    "rtsp://pilot:hunter2?x@10.0.0.2/live": "rtsp://***",
    "rtsp://pilot:hunter2#x@10.0.0.2/live": "rtsp://***",
    "rtsp://pilot:hunter2": "rtsp://***",
    "rtsp://10.0.0.2/user=admin_password=hunter2_channel=1.sdp": "rtsp://10.0.0.2/***",
    "rtsp://10.0.0.2/live/hunter2/main": "rtsp://10.0.0.2/live/***",
    "rtsp://10.0.0.2/Streaming/Channels/101": "rtsp://10.0.0.2/Streaming/Channels/101",
    "rtsp://10.0.0.2/cam/realmonitor?channel=1&password=hunter2": "rtsp://10.0.0.2/cam/realmonitor?***",
    "rtsp://10.0.0.2/h264Preview_01_main": "rtsp://10.0.0.2/h264Preview_01_main",
    "rtsp://10.0.0.2:8554/stream1/": "rtsp://10.0.0.2:8554/stream1/",
    "rtsps://10.0.0.2:7441/hunter2": "rtsps://10.0.0.2:7441/***",
    "rtmp://10.0.0.2/live/hunter2": "rtmp://10.0.0.2/live/***",
    "http://10.0.0.2/mjpg?user=admin&password=hunter2": "http://10.0.0.2/mjpg?***",
    "http://10.0.0.2/mjpg?password=a@hunter2": "http://***",
    "http://10.0.0.2/hls/hunter2.m3u8": "http://10.0.0.2/***",
    "http://10.0.0.2/hunter2/clip.mp4?token=hunter2": "http://10.0.0.2/***/clip.mp4?***",
    "srt://10.0.0.2:9000?passphrase=hunter2": "srt://10.0.0.2:9000?***",
    "http://[::1]:80/clip.mp4": "http://[::1]:80/clip.mp4",
    "udp://@:5600": "udp://@:5600",
    "udp://239.0.0.1:5600": "udp://239.0.0.1:5600",
    "/home/me/a@b?c.mp4": "/home/me/a@b?c.mp4",
}


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_password_is_shown_in_no_form_of_an_address(address: str):
    assert safe_address(address) == ADDRESSES[address]
    for text in (one_line(f"camera {address}: refused"), shown(address), shown(f"is {address}, not")):
        assert "hunter2" not in text


def test_help_and_links_stay_as_they_are():
    text = "give rtsp://..., udp://@:PORT or see https://docs.ros.org/en/jazzy; pip --index-url https://a.b/c"
    assert one_line(text) == text


@pytest.mark.parametrize(
    "address",
    ["rtsp://pilot:hunter2@127.0.0.1:{port}/live", "http://127.0.0.1:{port}/x?user=a&password=hunter2"],
)
def test_no_output_of_a_command_shows_a_password(address: str, tmp_path: Path, capsys):
    place = address.format(port=free_port())
    assert main(["track", place, *BOX, "--json", str(tmp_path / "t.json")]) == 2
    assert main(["track", "a.mp4", place, *BOX]) == 2
    assert main(["track", "a.mp4", "--start", place]) == 2
    said = capsys.readouterr()
    assert "127.0.0.1" in said.err
    assert "hunter2" not in said.err + said.out
    with pytest.raises(InputError) as refusal:
        open_source(place)
    assert "hunter2" not in str(refusal.value)


def test_a_pipe_is_no_video_and_nothing_waits_for_it(efftam_here, tmp_path: Path):
    os.mkfifo(tmp_path / "pipe.mp4")
    assert_refused(efftam_here("track", "pipe.mp4", *BOX), "pipe.mp4 is a pipe or device")


RTP = """
import sys, time, av, numpy as np
out = av.open(f"rtp://127.0.0.1:{sys.argv[1]}", "w", format="rtp")
stream = out.add_stream("libx264", rate=30, options={"preset": "ultrafast", "tune": "zerolatency", "g": "15"})
stream.width, stream.height, stream.pix_fmt = 160, 120, "yuv420p"
began, i = time.monotonic(), 0
while True:
    frame = av.VideoFrame.from_ndarray(np.full((120, 160, 3), i % 200, np.uint8), "bgr24")
    frame.pts = i
    out.mux(stream.encode(frame))
    i += 1
    time.sleep(max(0.0, began + i / 30 - time.monotonic()))
"""
SDP = """v=0
o=- 0 0 IN IP4 127.0.0.1
s=camera
c=IN IP4 127.0.0.1
t=0 0
m=video {port} RTP/AVP 96
a=rtpmap:96 H264/90000
a=fmtp:96 packetization-mode=1
"""


def test_a_description_of_an_rtp_stream_is_read_as_a_camera(tmp_path: Path):
    port, file = free_port(), tmp_path / "camera.sdp"
    file.write_text(SDP.format(port=port))
    assert is_live(str(file))
    with running(sys.executable, "-c", RTP, port):
        camera = Camera(str(file), 20.0, CameraOptions(timeout=10.0))
        frames = camera.frames()
        assert next(frames).size == (160, 120)
        assert next(frames).index > 0
        camera.close()


def test_without_a_home_folder_there_is_one_line(monkeypatch: pytest.MonkeyPatch):
    """As in a container that runs as a user without an entry."""
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", lambda number: {}[number])
    with pytest.raises(InputError, match=r"~/x lies in the home folder, which is not known: set HOME"):
        expanded("~/x")
    assert expanded("/x") == Path("/x")


def test_errors_of_memory_are_explained():
    small = np.zeros((2, 2), np.uint8)
    for allocate in (lambda: np.empty(1 << 60, np.uint8), lambda: cv2.resize(small, (1 << 30, 1 << 30))):
        with pytest.raises((MemoryError, cv2.error)) as error:
            allocate()
        assert "the memory is not enough" in (explain(error.value) or "")


RUN = "import sys; from efftam_ros.tools.cli import main; sys.exit(main(sys.argv[1:]))"


def test_a_closed_standard_output_gives_one_line_and_the_files_are_whole(square_video: Path, tmp_path: Path):
    report = tmp_path / "track.json"
    words = ["track", str(square_video), "--box", "40,30,24,24", "--json", str(report), "--quiet"]
    command = f'exec "{sys.executable}" -c "$RUN" "$@" >&-'
    done = subprocess.run(
        ["bash", "-c", command, "bash", *words],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "RUN": RUN},
        check=False,
    )
    (line,) = done.stderr.splitlines()
    assert "standard output" in line
    assert "/dev/null" in line
    assert done.returncode == 2
    assert json.loads(report.read_text())["complete"] is True


def test_a_working_folder_that_was_removed_gives_one_line(square_video: Path, tmp_path: Path):
    for words in (
        ["--box", "40,30,24,24", "--json", "track.json"],
        ["--box", "40,30,24,24", "--json", str(tmp_path / "t.json"), "--out", "o.mp4"],
    ):
        gone = tmp_path / "gone"
        gone.mkdir()
        command = f'cd "{gone}" && rmdir "{gone}" && exec "{sys.executable}" -c "$RUN" "$@"'
        done = subprocess.run(
            ["bash", "-c", command, "bash", "track", str(square_video), *words, "--quiet"],
            capture_output=True,
            text=True,
            env={**os.environ, "RUN": RUN},
            check=False,
        )
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert done.returncode == 2


def test_a_box_below_4_px_is_refused_and_a_weak_selection_told(square_video: Path, tmp_path: Path, capsys):
    report = "/dev/null"
    for box in ("40,30,1,1", "40,30,24,3.9"):
        assert main(["track", str(square_video), "--box", box, "--quiet"]) == 2
        assert "at least 4 x 4" in capsys.readouterr().err
    for i in range(2):
        cv2.imwrite(str(tmp_path / f"{i}.png"), np.full((120, 160, 3), 90, np.uint8))
    main(["track", str(tmp_path), "--box", "100,80,20,20", "--json", report, "--quiet"])
    assert "weak selection" in capsys.readouterr().err
