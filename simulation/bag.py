"""Publishes the images, camera info and selections of a bag to a running tracker, with the recorded time on
/clock. rosbag2 need not be installed.

Arguments of ROS come last: `python -m simulation bag BAG --box X,Y,W,H --ros-args -r image:=/cam/image`.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_ros.messages.bags import (
    IMAGE_TYPES,
    PACKAGE,
    SELECTION_TYPE,
    camera_info_topic,
    choose_topic,
    messages,
    open_typestore,
    reading,
    writing,
)
from efftam_ros.ros.common.process import StopFlag, start_ros
from simulation.bag_player import BagPlayer, Recorded


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bag", type=_path, metavar="BAG", help="bag folder, .mcap or .db3")
    parser.add_argument("--topic", default="", help="image topic (default: /image, or the only one)")
    parser.add_argument(
        "--rate", type=float, default=1.0, help="speed; 0: wait for the tracker's result of each image"
    )
    parser.add_argument("--box", type=_box, metavar="X,Y,W,H", help="select this on the first image")
    parser.add_argument("--out", type=_path, metavar="BAG", help="record the tracker's results to a new bag")
    parser.add_argument("--with-masks", action="store_true", help="record the masks too")
    parser.add_argument("--ros-args", nargs=argparse.REMAINDER, default=[], help="arguments of ROS, last")


def _path(text: str) -> Path:
    return Path(text).expanduser()


def _box(text: str) -> Box:
    try:
        x, y, width, height = (float(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not X,Y,W,H in pixels, such as 100,80,40,30") from None
    return Box(x, y, width, height)


def run(args: argparse.Namespace) -> int:
    import rclpy
    from rclpy.executors import SingleThreadedExecutor

    if not 0 <= args.rate < math.inf:
        raise InputError(f"--rate is {args.rate:g}; give 0 or more")
    topics = {"bbox": f"{PACKAGE}/msg/BoundingBox", "velocity": f"{PACKAGE}/msg/TargetVelocity"}
    if args.with_masks:
        topics["mask"] = IMAGE_TYPES[0]
    with StopFlag() as stop, ExitStack() as stack:
        reader = stack.enter_context(reading(args.bag))
        images = choose_topic(reader, args.topic or None)
        start_ros(["--ros-args", *args.ros_args])
        stack.callback(rclpy.try_shutdown)
        node, executor = rclpy.create_node("bag_player"), SingleThreadedExecutor()
        executor.add_node(node)
        record = None
        if args.out is not None:
            writer, store = stack.enter_context(writing(args.out, "mcap")), open_typestore()
            written = {
                topic: writer.add_connection(node.resolve_topic_name(topic), kind, typestore=store)
                for topic, kind in topics.items()
            }

            def record(topic: str, time_ns: int, cdr: bytes) -> None:
                writer.write(written[topic], time_ns, cdr)

        player = BagPlayer(node, executor, images.msgtype, args.rate, lambda: stop.asked, record, topics)
        count = player.play(_recorded(reader, images), args.box)
        node.get_logger().info(f"{count} images of {images.topic} played")
    return 0


def _recorded(reader: Any, images: Any) -> Iterator[Recorded]:
    """Yield the images, camera_info and selections of the bag, in recorded order."""
    roles = {images.id: "image"}
    info = camera_info_topic(reader, images.topic)
    if info is not None:
        roles[info.id] = "camera_info"
    roles |= {c.id: "select" for c in reader.connections if c.msgtype == SELECTION_TYPE}
    wanted = [c for c in reader.connections if c.id in roles]
    for connection, recorded_ns, cdr in messages(reader, wanted):
        yield Recorded(roles[connection.id], recorded_ns, bytes(cdr))
