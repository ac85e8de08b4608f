"""Sends images to a tracker node at a camera's rate and measures when the boxes come back.

    python -m efftam_workshop.bench.latency [options] [-- NODE COMMAND...]

Node and camera are separate processes on the real middleware, limited to this machine. Prints JSON.
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from efftam_ros.core.errors import InputError
from efftam_ros.package_files import PROFILE_VARIABLES
from efftam_ros.ros.common.process import start_ros
from efftam_ros.tools.common.interruption import SIGNALS
from efftam_workshop.bench.moving_target import PERIOD_NS, endless

SIZE = (1280, 720)
SMALL = (64, 36)  # px; images this small all arrive, so they show whether the node answers
PATIENCE_S = 120.0  # the node's back end may compile for minutes, unless `efftam build` was run before
SETTLE_S = 2.0
TRACKER = "import sys; from efftam_ros.ros.main import main; sys.exit(main('efftam_tracker', sys.argv))"


def feed(size: tuple[int, int], seconds: float, reliability: str, *, select: bool = True) -> dict[str, Any]:
    """Publish images of ``size`` (width, height) px for ``seconds`` and wait for the boxes.

    ``reliability``: that of the camera's publisher, "reliable" or "best_effort". ``select``: whether the
    target is selected before the measurement.

    Returns:
        ``sent`` and ``answered``: numbers of images. ``p50_ms`` and ``p99_ms``: from publishing an image to
        receiving its box, None without answers. ``callback_p50_ms`` and ``callback_p99_ms``: measured by the
        node from its image callback to publishing the box, over its last ten seconds. ``lost``: the node's
        estimate of lost images.

    Raises:
        InputError: ROS does not start, the node does not answer, or it does not follow the target.
    """
    import rclpy
    from diagnostic_msgs.msg import DiagnosticArray
    from efftam_ros.msg import BoundingBox, TargetSelection
    from rclpy.executors import SingleThreadedExecutor
    from rclpy.qos import QoSProfile, ReliabilityPolicy
    from sensor_msgs.msg import Image

    from efftam_ros.images.message import fill_image, stamp_like, stamp_ns

    start_ros()
    node = rclpy.create_node("efftam_latency")
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    sent: dict[int, float] = {}
    ages: dict[int, float] = {}
    measured: list[int] = []
    values: dict[str, str] = {}

    def on_box(message: Any) -> None:
        stamp = stamp_ns(message.header.stamp)
        if stamp in sent:
            ages.setdefault(stamp, 1e3 * (time.monotonic() - sent[stamp]))
            measured.extend([stamp] if message.measured else [])

    def on_diagnostics(message: Any) -> None:
        values.update({item.key: item.value for status in message.status for item in status.values})

    # Camera drivers publish either reliably with a queue of ten, or best effort.
    qos = QoSProfile(depth=10, reliability=ReliabilityPolicy[reliability.upper()])
    images = node.create_publisher(Image, "image", qos)
    selections = node.create_publisher(TargetSelection, "select", 1)
    node.create_subscription(BoundingBox, "bbox", on_box, 100)
    node.create_subscription(DiagnosticArray, "/diagnostics", on_diagnostics, 10)

    def spin_until(moment_s: float) -> None:
        while (left := moment_s - time.monotonic()) > 0:
            executor.spin_once(timeout_sec=left)

    now_ns = 10**9

    def publish(pictures: Iterator[Any], done: Callable[[], bool], limit_s: float, chosen: bool) -> bool:
        nonlocal now_ns
        begin = time.monotonic()
        for count, (pixels, _, box) in enumerate(pictures):
            spin_until(begin + count * PERIOD_NS / 1e9)
            if done() or time.monotonic() - begin >= limit_s:
                return done()
            now_ns += PERIOD_NS
            message = fill_image(Image(), pixels, "bgr8")
            message.header.stamp = stamp_like(message.header.stamp, now_ns)
            sent[now_ns] = time.monotonic()
            images.publish(message)
            if chosen and count % 30 == 5:
                x, y, width, height = box.xywh()
                selections.publish(TargetSelection(x=x, y=y, width=width, height=height))
        return False

    try:
        pictures = endless(size)
        next(pictures)  # draws all pictures before the first one is published
        if not publish(endless(SMALL), lambda: len(ages) >= 10, PATIENCE_S, False):
            raise InputError(
                f"the node published no answer to an image within {PATIENCE_S:g} s; look at its log"
            )
        if select and not publish(pictures, lambda: bool(measured), PATIENCE_S, True):
            raise InputError(f"the node did not follow the target; its diagnostics: {values or 'none'}")
        if select:
            publish(pictures, lambda: False, SETTLE_S, False)
        spin_until(time.monotonic() + 1.0)
        sent.clear()
        ages.clear()
        publish(pictures, lambda: False, seconds, False)
        count = len(sent)
        spin_until(time.monotonic() + 1.5)  # time for the last boxes and diagnostics to arrive
    finally:
        executor.shutdown()
        node.destroy_node()
        rclpy.shutdown()
    p50, p99 = np.percentile(list(ages.values()), (50, 99)).tolist() if ages else (None, None)
    own = {f"callback_{p}_ms": float(values.get(f"latency {p} (ms)") or "nan") for p in ("p50", "p99")}
    lost = values.get("images lost on the way", "")
    return {"sent": count, "answered": len(ages), "p50_ms": p50, "p99_ms": p99, **own, "lost": lost}


@contextmanager
def running(command: Sequence[str]) -> Iterator[None]:
    process = subprocess.Popen(command)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(30.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, nargs=2, default=SIZE, help="image size, px")
    parser.add_argument("--seconds", type=float, default=10.0, help="default %(default)s")
    parser.add_argument("--camera", choices=("best_effort", "reliable"), default="best_effort")
    parser.add_argument("--profile", default="", help="Fast DDS profile to use if the environment names none")
    parser.add_argument("--idle", action="store_true", help="select no target")
    parser.add_argument("node", nargs="*", help="command that starts the node (default: the tracker's)")
    args = parser.parse_args()
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)  # so that `running` ends the node
    # The environment is set before ROS is loaded, because the Fast DDS profile also configures the shared
    # memory by which this process sends the images.
    os.environ |= {"ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST", "ROS_DOMAIN_ID": str(random.randint(1, 101))}
    if args.profile and not any(os.environ.get(name) for name in PROFILE_VARIABLES):
        os.environ |= dict.fromkeys(PROFILE_VARIABLES, args.profile)
    try:
        with running(args.node or [sys.executable, "-c", TRACKER, "--ros-args", "--log-level", "error"]):
            print(json.dumps(feed(tuple(args.size), args.seconds, args.camera, select=not args.idle)))
    except InputError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
