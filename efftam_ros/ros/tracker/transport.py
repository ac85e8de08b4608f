"""Measures how many camera images reach the node, with and without the Fast DDS profile, by reliability.

Camera and node are separate processes on the real middleware, limited to this machine. The node computes
nothing (NullPipeline); the counts come from its /diagnostics and the ages of images from its answers.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from efftam_ros.ros.common.large_images import PROFILE_VARIABLES
from efftam_ros.ros.tracker.latency import NODE

SIZES = ((640, 360), (1280, 720), (1920, 1080))
FPS = 30.0
PATIENCE_S = 30.0


@dataclass(frozen=True)
class Arrival:
    """One row of the table: how a camera's images reached the node.

    ``age_ms``: median time from publishing to the answer, of the images that were answered.
    """

    width: int
    height: int
    camera: str
    node: str
    profile: bool
    sent: int
    received: int
    age_ms: float | None


def measure(width: int, height: int, camera: str, node: str, profile: str, count: int) -> Arrival:
    """Send ``count`` images from a camera process to a node process.

    ``camera``: reliable or best_effort; ``node``: its image_reliability. Raises RuntimeError when the node or
    the camera does not start.
    """
    environment = {name: value for name, value in os.environ.items() if name not in PROFILE_VARIABLES}
    environment |= {
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
        "ROS_DOMAIN_ID": str(random.randint(1, 101)),
    }
    if profile:
        environment |= dict.fromkeys(PROFILE_VARIABLES, profile)
    started = [sys.executable, "-c", NODE, "--ros-args", "--log-level", "error"]
    tracker = subprocess.Popen([*started, "-p", f"image_reliability:={node}"], env=environment)
    try:
        sender = subprocess.run(
            [sys.executable, "-m", __spec__.name, "camera", str(width), str(height), camera, str(count)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=4 * PATIENCE_S + count / FPS,
        )
    finally:
        tracker.terminate()
        tracker.wait()
    if sender.returncode:
        raise RuntimeError(sender.stderr.strip() or "the camera gave up")
    received, age_ms = json.loads(sender.stdout)
    return Arrival(width, height, camera, node, bool(profile), count, received, age_ms)


def run_camera(width: int, height: int, reliability: str, count: int) -> tuple[int, float | None]:
    """Publish ``count`` images at 30 Hz; returns how many were answered and the median time to the answer,
    ms."""
    import rclpy
    from rclpy.executors import SingleThreadedExecutor
    from rclpy.qos import QoSProfile, ReliabilityPolicy
    from sensor_msgs.msg import Image

    from efftam_ros.interop.messages import fill_image, stamp_like, stamp_ns
    from efftam_ros.msg import BoundingBox

    rclpy.init()
    node = rclpy.create_node("camera")
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    # As camera drivers do: reliable with a queue of ten, or sensor data.
    qos = QoSProfile(depth=10, reliability=ReliabilityPolicy[reliability.upper()])
    images = node.create_publisher(Image, "image", qos)
    sent: dict[int, float] = {}
    ages: dict[int, float] = {}

    def on_box(message: Any) -> None:
        stamp = stamp_ns(message.header.stamp)
        if stamp in sent:
            ages.setdefault(stamp, 1e3 * (time.monotonic() - sent[stamp]))

    node.create_subscription(BoundingBox, "bbox", on_box, 100)
    pixels = np.random.default_rng(0).integers(0, 255, (height, width, 3), np.uint8)
    small = np.zeros((36, 64, 3), np.uint8)  # small enough to arrive always: shows that the node is running

    def publish(stamp: int, shown: Any) -> None:
        message = fill_image(Image(), shown, "bgr8")
        message.header.stamp = stamp_like(message.header.stamp, stamp)
        sent[stamp] = time.monotonic()
        images.publish(message)

    def spin_until(moment: float) -> None:
        while (left := moment - time.monotonic()) > 0:
            executor.spin_once(timeout_sec=left)

    end = time.monotonic() + PATIENCE_S
    for attempt in itertools.count(1):
        publish(attempt, small)
        spin_until(time.monotonic() + 0.1)
        if len(ages) >= 10:  # by now the subscription has chosen its reliability
            break
        if time.monotonic() > end:
            raise RuntimeError("the node answers no image")
    spin_until(time.monotonic() + 1.0)
    sent.clear()
    ages.clear()
    begin = time.monotonic()
    for i in range(count):
        spin_until(begin + i / FPS)
        publish(10**9 + round(i * 1e9 / FPS), pixels)
    spin_until(time.monotonic() + 1.0)
    executor.shutdown()
    node.destroy_node()
    rclpy.shutdown()
    return len(ages), statistics.median(ages.values()) if ages else None


def main() -> int:
    """Print a Markdown table; with the argument ``camera``, run the sending child process."""
    if sys.argv[1:2] == ["camera"]:
        size, count = (int(sys.argv[2]), int(sys.argv[3])), int(sys.argv[5])
        print(json.dumps(run_camera(*size, sys.argv[4], count)))
        return 0
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", required=True, help="Fast DDS profile, config/fastdds_images.xml")
    parser.add_argument("--images", type=int, default=150, help="per row (default %(default)s)")
    args = parser.parse_args()
    print("| image | camera | node asks | profile | received | age, median |\n|---|---|---|---|---|---|")
    for (width, height), profile in itertools.product(SIZES, (args.profile, "")):
        for camera, node in (("reliable", "auto"), ("reliable", "best_effort"), ("best_effort", "auto")):
            row = asdict(measure(width, height, camera, node, profile, args.images))
            age = "-" if row["age_ms"] is None else f"{row['age_ms']:.0f} ms"
            print(
                f"| {width}x{height} | {camera} | {node} | {'both' if profile else 'none'} |"
                f" {row['received']} of {row['sent']} | {age} |",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
