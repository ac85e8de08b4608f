"""Share of a camera's images that reach the node, with and without the Fast DDS profile.

It is measured for several sizes and for the reliabilities of camera and node. Both run as separate processes;
the node computes nothing. Prints a Markdown table. Age: median time from publishing an image to receiving its
answer.
"""

from __future__ import annotations

import argparse
import itertools

from benchmarks.latency import feed_null_node
from efftam_ros.core.errors import InputError
from efftam_ros.package_files import package_file

SIZES = ((640, 360), (1280, 720), (1920, 1080))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seconds", type=float, default=5.0, metavar="S", help="duration per row (default 5)"
    )


def run(args: argparse.Namespace) -> int:
    profile = package_file("config/fastdds_images.xml")
    if profile is None:
        raise InputError("config/fastdds_images.xml is not found; run this in the checkout")
    print("| image | camera | node asks | profile | received | age, median |\n|---|---|---|---|---|---|")
    for (width, height), given in itertools.product(SIZES, (str(profile), "")):
        for camera, node in (("reliable", "auto"), ("reliable", "best_effort"), ("best_effort", "auto")):
            found = feed_null_node(
                (width, height), args.seconds, given, "--idle", "--camera", camera, reliability=node
            )
            age = "-" if found["p50_ms"] is None else f"{found['p50_ms']:.0f} ms"
            print(
                f"| {width}x{height} | {camera} | {node} | {'both' if given else 'none'} |"
                f" {found['answered']} of {found['sent']} | {age} |",
                flush=True,
            )
    return 0
