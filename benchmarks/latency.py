"""Latency that the node itself adds, from an image's callback to the published `bbox`.

A process sends images at 30 Hz over the middleware, as a camera does. The node runs with a pipeline that
computes nothing. Goal: a median under 5 ms.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from efftam_ros.package_files import PROFILE_VARIABLES, package_file
from efftam_workshop.bench.command import PROFILE, feed_node, image_size

NULL_NODE = (
    "import sys\n"
    "from efftam_ros.ros.main import main\n"
    "from simulation.null_pipeline import NullPipeline\n"
    "sys.exit(main('efftam_tracker', sys.argv, pipeline_factory=lambda *given: NullPipeline()))\n"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=20.0, metavar="S", help="duration (default 20)")
    parser.add_argument(
        "--image", type=image_size, default=(1280, 720), metavar="WxH", help="size of images (1280x720)"
    )


def run(args: argparse.Namespace) -> int:
    profile = str(package_file(PROFILE) or "")
    print(json.dumps(feed_null_node(args.image, args.seconds, profile), indent=1))
    return 0


def feed_null_node(
    size: tuple[int, int], seconds: float, profile: str, *options: str, reliability: str = "auto"
) -> dict[str, Any]:
    """Send images to a node without a network, and return its latencies as `feed_node` does.

    Args:
        size: Width and height of the images, px.
        seconds: Duration of the measurement.
        profile: File with the Fast DDS profile of camera and node; "": none.
        options: Further options for `efftam_workshop.bench.latency`.
        reliability: The node's parameter image_reliability.

    Raises:
        InputError: The node does not answer.
    """
    node = [sys.executable, "-c", NULL_NODE, "--ros-args", "--log-level", "error"]
    node += ["-p", f"image_reliability:={reliability}"]
    environment = {name: value for name, value in os.environ.items() if name not in PROFILE_VARIABLES}
    return feed_node(node, size, seconds, *options, "--profile", profile, environment=environment)
