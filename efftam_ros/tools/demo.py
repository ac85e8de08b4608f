"""Track a clip that ships with the package, and compare the result with the true boxes.

The clip is rendered: a camera follows a car, another car that looks the same passes it, and a bridge hides
the car. The command writes overlay.mp4 and track.json, like `efftam track`. With --live it writes nothing: it
sends the clip as a camera's stream to the ROS 2 nodes, and you select the target on the page.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box, iou
from efftam_ros.tools import track
from efftam_ros.tools.cli import described
from efftam_ros.tools.common.options import add_bundle_option, add_quiet_argument, open_bundle
from efftam_ros.tools.common.outputs import Output, check_outputs
from efftam_ros.tools.demo_live import run_live

OUT = Path("demo_output")
CLIP = Path(__file__).resolve().parents[1] / "demo" / "clip"
# The second car, which looks like the target: the first frame that shows it completely, and its box there,
# px.
TWIN = 36, (216.0, 292.0, 62.0, 52.0)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--frames", type=int, metavar="N", help="process at most N frames (default: all)")
    add_bundle_option(parser)
    parser.add_argument("--out", type=Path, default=OUT, metavar="FOLDER", help="default %(default)s")
    parser.add_argument(
        "--twin", action="store_true", help="follow both cars, from the frame in which both are visible"
    )
    live = parser.add_argument_group("live (ROS 2)")
    live.add_argument(
        "--live",
        action="store_true",
        help="send the clip like a live camera, and run the nodes and the page until Ctrl-C",
    )
    live.add_argument(
        "--address",
        default="127.0.0.1",
        help="address of the page (default 127.0.0.1: this computer only; 0.0.0.0: a phone too)",
    )
    live.add_argument("--port", type=int, default=8080, help="port of the page (default 8080); 0: a free one")
    add_quiet_argument(parser)


def run(args: argparse.Namespace) -> int:
    if args.frames is not None and args.frames < 1:
        raise InputError(f"--frames is {args.frames}; it must be at least 1")
    if args.live:
        first = np.loadtxt(CLIP / "boxes.csv", delimiter=",", skiprows=1, usecols=(1, 2, 3, 4))[0]
        run_live(CLIP, Box(*map(float, first)), args.address, args.port)
    open_bundle(args.bundle)
    check_outputs([Output("--out", args.out, "folder")])
    args.out.mkdir(parents=True, exist_ok=True)
    start, twin = TWIN if args.twin else (0, None)
    file = args.out / "track.json"
    boxes = np.loadtxt(CLIP / "boxes.csv", delimiter=",", skiprows=1, usecols=(1, 2, 3, 4))[start:]
    arguments = [CLIP / "video.mp4", "--start", start]
    for box in [boxes[0]] if twin is None else [boxes[0], twin]:
        arguments += ["--box", ",".join(map(str, box))]
    arguments += ["--out", args.out / "overlay.mp4", "--json", file]
    for name, given in (("--frames", args.frames), ("--bundle", args.bundle)):
        arguments += [] if given is None else [name, given]
    arguments += ["--quiet"] * args.quiet
    if not args.quiet:
        count = min(args.frames or len(boxes), len(boxes))
        line = f"demo: {count} frames of 640x360; the results take about 1 MB in {args.out}"
        print(line, file=sys.stderr)
    track.run(described("efftam demo", track).parse_args([*map(str, arguments)]))
    print(_compared(json.loads(file.read_text(encoding="utf-8"))["frames"], boxes))
    print(f"wrote {args.out / 'overlay.mp4'}, {file}")
    return 0


def _compared(frames: list[dict[str, Any]], boxes: NDArray[np.float64]) -> str:
    """Return one line that compares the tracked boxes with the true ones.

    ``frames``: the list "frames" of track.json; ``boxes``: true x, y, w, h, px, [N, 4], NaN while the target
    is hidden.
    """
    truth = [Box(*row) if np.isfinite(row).all() else None for row in boxes[: len(frames)]]
    known = list(zip(frames, truth, strict=True))[1:]
    overlaps = [iou(Box(*one["box"]), box) if one["box"] else 0.0 for one, box in known if box is not None]
    claimed = sum(box is None and one["state"] == "TRACKING" for one, box in known)
    mean = f"{np.mean(overlaps):.2f}" if overlaps else "unknown"
    return (
        f"mean overlap with the truth {mean}, {claimed} frames in state TRACKING while the target was hidden"
    )
