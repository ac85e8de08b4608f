"""What one sender on an open domain can make the node spend: memory, log, diagnostics. The real network where
memory is at stake."""

from __future__ import annotations

import re
import resource
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from efftam_ros.msg import BoundingBox, TargetSelection
from level_pipeline import HEIGHT, WIDTH, bright_box, scene
from ros_helpers import ROOT, box_selection, image_message, new_namespace, stamp_of
from sensor_msgs.msg import CompressedImage, Image
from support.bombs import png_bomb

from efftam_ros.core.geometry import Box
from efftam_ros.images.message import fill_image

MIB = 2**20


def peak_bytes(pid: int) -> int:
    """The most memory the process ever held."""
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())[1]) * 1024


def leave_little_memory(pid: int, left: int) -> None:
    """Let the process map so many bytes more than it has mapped now."""
    mapped = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
    resource.prlimit(pid, resource.RLIMIT_AS, (mapped + left, mapped + left))


def compressed(data: bytes, i: int, kind: str = "png") -> CompressedImage:
    message = CompressedImage(format=kind, data=data)
    message.header.stamp.sec, message.header.stamp.nanosec = divmod(stamp_of(i), 10**9)
    return message


def png(i: int) -> bytes:
    return cv2.imencode(".png", scene(i))[1].tobytes()


@pytest.fixture
def real_tracker(processes, peers, tmp_path):
    """The node as it ships, with its network, in a home of its own."""

    def start(*arguments: str, **peer):
        namespace, home = new_namespace(), tmp_path / "home"
        home.mkdir()
        made = peers(namespace, **peer)
        made.home = home
        command = [sys.executable, str(ROOT / "scripts" / "efftam_tracker"), "--ros-args"]
        command += ["-r", f"__ns:=/{namespace}", "-p", "image_timeout:=60.0", "-p", "threads:=1", *arguments]
        made.process = processes(command, HOME=str(home), XDG_CACHE_HOME="")
        made.wait_until_active()
        return made

    return start


def test_selections_of_any_size_take_no_memory_and_telemetry_leaves_no_file(real_tracker):
    peer = real_tracker()
    peer.warm_up()
    peer.show(0)
    before = peak_bytes(peer.process.pid)
    as_shares = box_selection(Box(0.0, 0.0, 60.0, 60.0), units=TargetSelection.NORMALIZED)
    answer = peer.select(as_shares)
    assert not answer.success
    assert "60 x 60 in shares of the image; at most 1.5" in answer.message
    assert "PIXELS" in answer.message
    for i, box in enumerate((Box(-5e8, -5e8, 1e9, 1e9), Box(0, 0, 1e7, 1.0)), start=1):
        peer.show(2 * i)
        peer.follow(2 * i, box)
        peer.show(2 * i + 1)
    assert peak_bytes(peer.process.pid) - before < 200 * MIB
    left = [path for path in peer.home.rglob("*") if path.is_file() and ".ros" not in path.parts]
    assert left == []


def test_without_memory_the_node_goes_on_answering(tracker_process):
    """The first product of matrices used to wait for memory for ever, with the interpreter locked."""
    peer = tracker_process("-p", "image_timeout:=60.0")
    peer.show(0)
    leave_little_memory(peer.process.pid, 12 * MIB)
    marked = np.zeros((HEIGHT, WIDTH), np.uint8)
    x, y, width, height = (int(v) for v in bright_box(0).xywh())
    marked[y : y + height, x : x + width] = 255
    mask = fill_image(Image(), marked, "mono8")
    peer.select(TargetSelection(kind=TargetSelection.MASK, mask=mask))
    assert peer.select(box_selection(bright_box(0), stamp_of(0))).success
    for i in range(1, 8):
        box = peer.show(i)
    assert box.state == BoundingBox.TRACKING


def test_a_bomb_is_refused_by_its_header_and_the_stream_goes_on(real_tracker):
    peer = real_tracker(
        *("-p", "image_transport:=compressed", "-p", "diagnostics_period:=0.1"), image_type=CompressedImage
    )
    peer.warm_up(lambda stamp: compressed(png(0), (stamp - stamp_of(0)) // 33_000_000 - 100))
    peer.send(compressed(png(0), 0))
    before = peak_bytes(peer.process.pid)
    peer.images.publish(compressed(png_bomb(), 1))
    _, values = peer.diagnosis(lambda s, v: "32000" in v["last refused image"], "the refused bomb")
    assert "max_image_pixels" in values["last refused image"]
    peer.send(compressed(png(2), 2))
    assert peak_bytes(peer.process.pid) - before < 100 * MIB


def test_images_of_one_pixel_are_kept_in_bounded_number(tracker):
    """Their bytes are next to nothing: what they cost besides counts."""
    peer = tracker(
        "-p", "image_timeout:=60.0", "-p", "selection_buffer:=60.0", "-p", "selection_buffer_bytes:=1048576"
    )
    pixel = np.zeros((1, 1, 3), np.uint8)
    peer.send(image_message(pixel, stamp_of(0)))
    for i in range(1, 2_000):
        peer.images.publish(image_message(pixel, stamp_of(0) + i * 100_000))
        peer.spin_for(0.001)
    assert (
        "selection_buffer_bytes 1048576" in peer.select(box_selection(Box(0, 0, 1, 1), stamp_of(0))).message
    )
