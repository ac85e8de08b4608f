"""Measures the latency that the node itself adds, from image callback to `bbox` published, with a pipeline
that computes nothing.

The node runs in its own process and receives images over the real middleware; the times come from its own
/diagnostics.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from efftam_ros.ros.common.large_images import PROFILE_VARIABLES

FPS = 30.0
SIZE = (1280, 720)
NODE = (
    "import sys\n"
    "from efftam_ros.ros.tracker.main import main\n"
    "from efftam_ros.runtime.null_pipeline import NullPipeline\n"
    "sys.exit(main(sys.argv, lambda *given: NullPipeline()))\n"
)
PATIENCE_S = 30.0


@dataclass(frozen=True)
class Latency:
    """Result of a latency measurement.

    Attributes:
        p50_ms: Median from image callback to box published, over the node's last ten seconds.
        p99_ms: 99th percentile of the same.
        answered: Number of images that were answered.
        lost: Share of images lost in transport as reported by the node, as text.
        width: Image width, px.
        height: Image height, px.
        fps: Image rate, Hz.
        profile: The Fast DDS profile in use.
    """

    p50_ms: float
    p99_ms: float
    answered: int
    lost: str
    width: int
    height: int
    fps: float
    profile: str


def measure_latency(seconds: float, profile: str = "") -> Latency:
    """Send 720p images to the node for ``seconds`` and read the latency from its diagnostics.

    ``profile``: Fast DDS profile to use unless the environment names one. Raises RuntimeError when the node
    does not answer.
    """
    environment = _environment(profile)
    os.environ.update(environment)  # before ROS is loaded: the sender's shared memory counts
    with _node(environment):
        return _feed(seconds)


def _environment(profile: str) -> dict[str, str]:
    """Environment with a separate domain limited to this machine, and the Fast DDS profile without which
    images are lost."""
    values = {"ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST", "ROS_DOMAIN_ID": str(random.randint(1, 101))}
    if profile and not any(os.environ.get(name) for name in PROFILE_VARIABLES):
        values |= dict.fromkeys(PROFILE_VARIABLES, profile)
    return values


@contextmanager
def _node(environment: dict[str, str]) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, "-c", NODE, "--ros-args", "--log-level", "warn"], env={**os.environ, **environment}
    )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _feed(seconds: float) -> Latency:
    import rclpy
    from diagnostic_msgs.msg import DiagnosticArray
    from rclpy.executors import SingleThreadedExecutor
    from rclpy.qos import QoSProfile, ReliabilityPolicy
    from sensor_msgs.msg import Image

    from efftam_ros.interop.messages import fill_image
    from efftam_ros.msg import BoundingBox, TargetSelection

    rclpy.init()
    node = rclpy.create_node("efftam_latency")
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    tracked = 0
    values: dict[str, str] = {}

    def on_box(message: Any) -> None:
        nonlocal tracked
        tracked += message.measured

    def on_diagnostics(message: Any) -> None:
        for status in message.status:
            values.update({item.key: item.value for item in status.values})

    try:
        best_effort = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
        images = node.create_publisher(Image, "image", best_effort)
        selections = node.create_publisher(TargetSelection, "select", 1)
        node.create_subscription(BoundingBox, "bbox", on_box, 10)
        node.create_subscription(DiagnosticArray, "/diagnostics", on_diagnostics, 10)
        end = time.monotonic() + PATIENCE_S
        while not (images.get_subscription_count() and selections.get_subscription_count()):
            if time.monotonic() > end:
                raise RuntimeError(f"the node did not subscribe to images within {PATIENCE_S:g} s")
            executor.spin_once(timeout_sec=0.1)
        pixels = np.random.default_rng(0).integers(0, 255, (SIZE[1], SIZE[0], 3), np.uint8)
        begin = time.monotonic()
        for count in range(round(seconds * FPS)):
            while (left := begin + count / FPS - time.monotonic()) > 0:
                executor.spin_once(timeout_sec=left)
            message = fill_image(Image(), pixels, "bgr8")
            stamp_ns = 1_000_000_000 + round(count * 1e9 / FPS)
            message.header.stamp.sec, message.header.stamp.nanosec = divmod(stamp_ns, 1_000_000_000)
            images.publish(message)
            if not tracked and count % 10 == 5:  # a selection may arrive before the first image
                selections.publish(TargetSelection(x=600.0, y=300.0, width=80.0, height=60.0))
        end = time.monotonic() + 3.0
        while time.monotonic() < end:  # the last diagnostics
            executor.spin_once(timeout_sec=0.1)
    finally:
        executor.shutdown()
        node.destroy_node()
        rclpy.shutdown()
    return from_diagnostics(values, tracked)


def from_diagnostics(values: Mapping[str, str], tracked: int) -> Latency:
    """Read the latency from the values of the node's last diagnostics.

    Raises RuntimeError when they contain no latency, or when no box was measured (``tracked`` is 0).
    """
    if not tracked or not values.get("latency p50 (ms)"):
        raise RuntimeError(f"the node answered no image with a box; its diagnostics: {values or 'none'}")
    return Latency(
        p50_ms=float(values["latency p50 (ms)"]),
        p99_ms=float(values["latency p99 (ms)"]),
        answered=int(values["images processed"]),
        lost=values["images lost on the way"],
        width=SIZE[0],
        height=SIZE[1],
        fps=FPS,
        profile=os.environ.get(PROFILE_VARIABLES[0], ""),
    )


def main() -> int:
    """Print a `Latency` as JSON; one line on stderr and exit code 1 when the node does not answer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="default %(default)s")
    parser.add_argument("--profile", default="", help="Fast DDS profile, where the environment names none")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the node ends too
    try:
        print(json.dumps(asdict(measure_latency(args.seconds, args.profile))))
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
