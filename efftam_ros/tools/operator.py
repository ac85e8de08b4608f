"""Play a run of efftam track or a bag, or two runs of one video side by side, on a page in the browser.

Prints the address of the page and serves it until Ctrl-C. The live page of a camera comes with the tracker's
node: ros2 launch efftam_ros tracker.launch.py operator:=true
"""

from __future__ import annotations

import argparse
from pathlib import Path

from efftam_ros.tools.common.interruption import accept
from efftam_ros.tools.common.page import add_page_arguments, page_settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--play",
        type=Path,
        required=True,
        metavar="RUN",
        help="what efftam track --json or scripts/demo wrote: the JSON file, or the folder that holds it;"
        " or a bag with bbox and velocity",
    )
    parser.add_argument("--compare", type=Path, metavar="RUN", help="a second run of the same video")
    parser.add_argument(
        "--video",
        type=Path,
        help="video file or folder of images (default: the one that the run names); of a bag without images:"
        " the bag that was tracked",
    )
    parser.add_argument("--fps", type=float, help="frame rate of a folder of images (default: as in the run)")
    add_page_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from efftam_ros.operator.recorded.run import open_recording
    from efftam_ros.operator.server import OperatorServer
    from efftam_ros.operator.serving import serve_until_stopped

    recording = open_recording(args.play, args.compare, args.video, args.fps)
    server = OperatorServer(page_settings(args), recording=recording)
    try:
        serve_until_stopped(server, lambda url: print(f"open {url} (Ctrl-C ends the server)", flush=True))
    except KeyboardInterrupt as stop:
        accept(stop)
    return 0
