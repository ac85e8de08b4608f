"""A bag played into the tracker from another process, the answers recorded into a new bag."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest
import rclpy
from level_pipeline import FRAME_NS, HEIGHT, WIDTH, bright_box, grey_box, scene
from rclpy.executors import SingleThreadedExecutor
from ros_helpers import new_namespace, stamp_of, tracker_command
from rosbags.rosbag2 import Reader, StoragePlugin, Writer

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box, iou
from efftam_ros.images.message import stamp_ns
from efftam_ros.messages.bags import open_typestore
from simulation import bag_player
from simulation.bag_player import BagPlayer, header_stamp_ns

IMAGES = 20
PLAYER = [sys.executable, "-m", "simulation", "bag"]


@pytest.fixture(scope="module")
def store(ros):
    return open_typestore()


@pytest.fixture(scope="module")
def bag(store, tmp_path_factory) -> Path:
    """Images of the scene, and a selection drawn on image 2 that was recorded after image 6."""
    path = tmp_path_factory.mktemp("bags") / "flight"
    make = store.types

    def header(i):
        time = make["builtin_interfaces/msg/Time"](*divmod(stamp_of(i), 10**9))
        return make["std_msgs/msg/Header"](stamp=time, frame_id="camera")

    def image(i):
        return make["sensor_msgs/msg/Image"](
            header(i), HEIGHT, WIDTH, "bgr8", 0, 3 * WIDTH, scene(i).reshape(-1)
        )

    blank = make["sensor_msgs/msg/Image"](header(2), 0, 0, "", 0, 0, np.zeros(0, np.uint8))
    x, y, w, h = grey_box(2).xywh()
    no_labels = np.zeros(0, np.uint8)
    selection = make["efftam_ros/msg/TargetSelection"](header(2), 0, 0, 0, x, y, w, h, [], no_labels, blank)
    with Writer(path, version=9, storage_plugin=StoragePlugin.SQLITE3) as writer:
        images = writer.add_connection("/camera/image_raw", "sensor_msgs/msg/Image", typestore=store)
        select = writer.add_connection("/select", "efftam_ros/msg/TargetSelection", typestore=store)
        for i in range(IMAGES):
            late = stamp_of(i) + 8_000_000  # recorded some time after it was taken
            writer.write(images, late, store.serialize_cdr(image(i), images.msgtype))
            if i == 6:
                writer.write(select, late + 1, store.serialize_cdr(selection, select.msgtype))
    return path


def answers(path: Path, store) -> dict[str, list]:
    found: dict[str, list] = {}
    with Reader(path) as reader:
        for connection, recorded, cdr in reader.messages():
            message = store.deserialize_cdr(cdr, connection.msgtype)
            found.setdefault(connection.topic.split("/")[-1], []).append((recorded, message))
    return found


def play(processes, *arguments, **environment):
    namespace = new_namespace()
    tracker = processes(tracker_command(namespace, "-p", "image_timeout:=20.0"), **environment)
    player = processes([*PLAYER, *map(str, arguments), "--ros-args", "-r", f"__ns:=/{namespace}"])
    assert player.wait(40) == 0, player.output + tracker.output
    return player


def test_every_image_is_answered_under_its_own_stamp(processes, bag, store, tmp_path):
    x, y, w, h = bright_box(0).xywh()
    out = tmp_path / "answers"
    player = play(processes, bag, "--rate", "0", "--box", f"{x},{y},{w},{h}", "--out", out, "--with-masks")
    assert f"{IMAGES} images of /camera/image_raw played" in player.output
    found = answers(out, store)
    boxes = [box for _, box in found["bbox"] if not math.isnan(box.x)]
    late = stamp_of(2)
    before_selection = [b for b in boxes if stamp_ns(b.header.stamp) < stamp_of(6)]
    for box in before_selection:
        i = (stamp_ns(box.header.stamp) - stamp_of(0)) // FRAME_NS
        truth = max(iou(Box(box.x, box.y, box.width, box.height), t) for t in (bright_box(i), grey_box(i)))
        assert truth > 0.9
    stamps = {stamp_ns(b.header.stamp) for b in boxes}
    assert stamps == {stamp_of(i) for i in range(IMAGES)}
    assert late in [stamp_ns(b.header.stamp) for b in boxes[3:]]  # the selection of the bag went back to it
    last = boxes[-1]
    assert iou(Box(last.x, last.y, last.width, last.height), grey_box(IMAGES - 1)) > 0.9
    assert len(found["velocity"]) >= len(found["bbox"])
    assert len(found["mask"]) > IMAGES / 2


def test_a_box_that_is_refused_ends_the_player_with_the_reason(processes, bag):
    namespace = new_namespace()
    processes(tracker_command(namespace, "-p", "image_timeout:=20.0"))
    arguments = ["--rate", "0", "--box", "5000,10,20,20", "--ros-args", "-r", f"__ns:=/{namespace}"]
    player = processes([*PLAYER, str(bag), *arguments])
    assert player.wait(40) == 2
    (line,) = [line for line in player.output.splitlines() if line.startswith("python -m simulation bag: ")]
    assert "the tracker refused the box: " in line
    assert "lies outside the image" in line


def test_where_nobody_subscribes_the_remapping_is_named(ros, monkeypatch):
    monkeypatch.setattr(bag_player, "PATIENCE_S", 0.5)
    node, executor = rclpy.create_node("player", namespace=new_namespace()), SingleThreadedExecutor()
    executor.add_node(node)
    try:
        with pytest.raises(InputError, match="--ros-args -r image:=ITS_TOPIC"):
            BagPlayer(node, executor, "sensor_msgs/msg/Image").play([])
    finally:
        executor.shutdown()
        node.destroy_node()


def test_a_message_that_is_cut_off_before_its_stamp_is_refused():
    with pytest.raises(InputError, match="a message of 5 bytes on its image topic that is no image"):
        header_stamp_ns(b"\0\1\0\0\1")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["{bag}", "--topic", "/front"], "the bag has no topic /front"),
        (["{bag}", "--rate", "nan"], "--rate is nan; give 0 or more"),
        (["{bag}", "--ros-args", "-p", "x"], "python -m simulation bag: failed to initialize rcl"),
    ],
)
def test_what_can_not_be_played_is_refused_in_one_line(processes, bag, arguments, words):
    player = processes([*PLAYER, *(a.format(bag=bag) for a in arguments)])
    assert player.wait() == 2
    assert words in player.output
    assert "Traceback" not in player.output


def test_the_stamp_is_read_from_the_first_bytes_of_either_order():
    assert header_stamp_ns(bytes([0, 1, 0, 0, 5, 0, 0, 0, 7, 0, 0, 0, 9])) == 5_000_000_007
    assert header_stamp_ns(bytes([0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 7, 9])) == 5_000_000_007
