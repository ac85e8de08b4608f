"""Latency that the node itself adds: image callback to `bbox` published, without a network.

A camera's process sends images at 30 Hz over the middleware; the node's pipeline computes nothing. Goal: a
median under 5 ms.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from typing import Any

from efftam_ros.core.errors import InputError
from efftam_ros.interop.package_files import package_file
from efftam_ros.ros.common.large_images import PROFILE_VARIABLES
from efftam_ros.tools.bench.command import image_size

NULL_NODE = (
    "import sys\n"
    "from efftam_ros.ros.main import main\n"
    "from simulation.null_pipeline import NullPipeline\n"
    "sys.exit(main('efftam_tracker', sys.argv, pipeline_factory=lambda *given: NullPipeline()))\n"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=20.0, metavar="S", help="default 20")
    parser.add_argument("--image", type=image_size, default=(1280, 720), metavar="WxH", help="1280x720")


def run(args: argparse.Namespace) -> int:
    profile = str(package_file("config/fastdds_images.xml") or "")
    print(json.dumps(feed_null_node(args.image, args.seconds, profile), indent=1))
    return 0


def feed_null_node(
    size: tuple[int, int], seconds: float, profile: str, *options: str, reliability: str = "auto"
) -> dict[str, Any]:
    """As `ros.tracker.latency.feed`, to a node without a network, both in processes of their own.

    ``profile``: the Fast DDS profile of both, "" for none. ``options``: of `ros.tracker.latency`.
    ``reliability``: the node's image_reliability. Raises InputError when the node does not answer.
    """
    node = [sys.executable, "-c", NULL_NODE, "--ros-args", "--log-level", "error"]
    command = [sys.executable, "-m", "efftam_ros.ros.tracker.latency", "--seconds", str(seconds)]
    command += ["--size", *map(str, size), *options, "--profile", profile]
    environment = {name: value for name, value in os.environ.items() if name not in PROFILE_VARIABLES}
    done = subprocess.run(
        [*command, "--", *node, "-p", f"image_reliability:={reliability}"],
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise InputError(f"the node could not be measured: {done.stderr.strip() or done.stdout.strip()}")
    return dict(json.loads(done.stdout.splitlines()[-1]))
