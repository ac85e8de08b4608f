"""Measure the time of a frame by stage, as the node processes it: default policy, camera motion on.

Stages: median and 99th percentile (p99) of the counted frames, and the share of the whole frame. preprocess
converts the image; image_encoder, memory_attention, mask_decoder and memory_encoder are the network. On a GPU
their times are the GPU's own, and memory_encoder is that of the previous frame. Camera motion is computed on
the CPU. "identity of a crop" is the time of one crop; each followed target has five crops per
second. "image to box" ends when the box is known. "whole frame" ends when the frame is also stored in memory,
which the node does after publishing the box.

--timeline: all spans of one frame, host and GPU on one clock. The frame of median length is shown, and what
its time was spent on. "the network computes": on the GPU or in ONNX Runtime. The rows below are the gaps in
which the network does not compute, by what the host does meanwhile. All rows add up to the frame.
- "graph launch": the host launches graphs and kernels.
- "binding": the host sets the addresses of their tensors.
- "wait": the GPU has finished and the host has not continued yet.
- "copies": the host copies images, memory and results.
- "events": other calls of the driver.
- "policy": the tracker decides.
- "publishing": messages are filled.
CUPTI (package cupti-python) measures the GPU's times if it is installed, otherwise CUDA events do.

--trace writes the frames up to the shown one for Perfetto (ui.perfetto.dev) or chrome://tracing.

--soak: memory and the time of a whole frame at the start and at the end of a long run.

--node: "published" is the time from an image published by a camera's process until that process receives the
box. "callback" is measured by the node: from its image callback until the box is published.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from efftam_ros.core.errors import InputError
from efftam_ros.core.types import Frame, Image
from efftam_ros.package_files import package_file
from efftam_ros.runtime.backends import backend_of
from efftam_ros.runtime.opening import open_pipeline
from efftam_ros.tools.common.options import (
    add_network_arguments,
    add_settings_argument,
    open_bundle,
    pipeline_config,
    tracker_config,
)
from efftam_ros.tools.common.outputs import Output, check_outputs, write_text
from efftam_ros.tools.common.prompts import read_prompt
from efftam_ros.tools.common.terminal import Cell, print_table
from efftam_workshop.bench.frames import (
    A_CROP,
    WARM_UP,
    Frames,
    drawn_frames,
    measure_soak,
    measure_stages,
)
from efftam_workshop.bench.latency import TRACKER
from efftam_workshop.bench.timeline.device import device_clock
from efftam_workshop.bench.timeline.run import Timeline, record
from efftam_workshop.bench.timeline.trace_file import write_trace

FRAMES, NODE_SECONDS = 200, 10.0
TOTALS = ("image to box", "whole frame")
PROFILE = "config/fastdds_images.xml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--timeline", action="store_true", help="what the time of a frame is spent on")
    what.add_argument(
        "--soak", type=float, metavar="SECONDS", help="memory and times at both ends of a long run"
    )
    what.add_argument("--node", action="store_true", help="times of the node over the middleware (ROS 2)")
    add_network_arguments(parser)
    on = parser.add_argument_group("images")
    on.add_argument("--image", type=image_size, metavar="WxH", help="size of drawn images (default 1280x720)")
    on.add_argument("--video", type=Path, metavar="FILE", help="use frames of a video, not drawn images")
    on.add_argument("--box", metavar="X,Y,W,H", help="the target in the video's first frame, px")
    text = f"counted frames after {WARM_UP} of warm-up (default {FRAMES})"
    on.add_argument("--frames", type=int, default=FRAMES, metavar="N", help=text)
    add_settings_argument(on)
    text = "write the time line in Chrome's trace format, for Perfetto"
    parser.add_argument("--trace", type=Path, metavar="FILE", help=text)
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write all figures; - prints them instead of tables"
    )


def run(args: argparse.Namespace) -> int:
    if args.frames < 1:
        raise InputError(f"--frames is {args.frames}; it must be at least 1")
    if args.soak is not None and not 0 < args.soak < float("inf"):
        raise InputError(f"--soak is {args.soak:g}; give seconds above 0")
    if args.video and args.box is None:
        raise InputError("--video is given without the target in its first frame; add --box X,Y,W,H")
    if args.box and args.video is None:
        raise InputError(f"--box {args.box} is a target in a video; add --video FILE, or leave out --box")
    if args.video and (other := next((o for o in ("image", "soak", "node") if getattr(args, o)), None)):
        raise InputError(f"--video and --{other} exclude each other; leave out one of them")
    if args.trace and not args.timeline:
        raise InputError(f"--trace {args.trace} writes a time line; add --timeline")
    check_outputs([Output("--json", args.json), Output("--trace", args.trace)], [args.video])
    args.image = args.image or (1280, 720)
    bundle = open_bundle(args.bundle)
    precision = backend_of(args.backend).resolved(args.precision)
    report: dict[str, Any] = {"bundle": bundle.spec.name, "backend": args.backend, "precision": precision}
    config = tracker_config(args.settings)
    timeline: Timeline | None = None
    if args.node:
        report["node"] = measure_node(args)
    elif args.timeline:
        clock = device_clock(backend_of(args.backend).gpu)
        with closing(open_pipeline(pipeline_config(args), bundle)) as pipeline:
            timeline = record(pipeline, config, _frames(args), args.frames, clock)
        report["timeline"] = timeline.report()
        if args.trace:
            write_trace(
                args.trace, *timeline.traced(), {k: report[k] for k in ("bundle", "backend", "precision")}
            )
    else:
        with closing(open_pipeline(pipeline_config(args), bundle)) as pipeline:
            if args.soak:
                report["soak"] = measure_soak(pipeline, config, _frames(args), args.soak)
            else:
                report["stages"] = measure_stages(pipeline, config, _frames(args), args.frames)
    text = json.dumps(report, indent=1)
    if str(args.json) == "-":
        print(text)
        return 0
    title = f"{report['bundle']} on {report['backend']}"
    if timeline is not None:
        print_table(*timeline.line(), digits=3, title=f"{title}, times by {timeline.clock}")
        print()
        print_table(*timeline.sums(), digits=3, title=f"the same frame, and {len(timeline.frames)} frames")
    else:
        print_table(*table(report), digits=2, title=title)
    if args.json is not None:
        write_text(args.json, text + "\n")
    return 0


def image_size(text: str) -> tuple[int, int]:
    """Return width and height in px, parsed from "WxH"."""
    found = re.fullmatch(r"(\d+)x(\d+)", text)
    if found is None or min(int(found[1]), int(found[2])) < 64:
        raise argparse.ArgumentTypeError(f"{text!r} is not WxH of at least 64x64, such as 1280x720")
    return int(found[1]), int(found[2])


def _frames(args: argparse.Namespace) -> Frames:
    if args.video is None:
        yield from drawn_frames(args.image)
        return
    from efftam_ros.images.video import open_video

    video = open_video(args.video)
    first = read_prompt(args.box, [], None, video.width, video.height)
    for number, frame in enumerate(video.frames()):
        yield Frame(Image.from_array(frame.bgr), frame.stamp_ns), None if number else first


def measure_node(args: argparse.Namespace) -> dict[str, Any]:
    """Measure the tracker node with the network options of the command line.

    Returns what `bench.latency.feed` returns. Raises InputError if ROS 2 or the built messages are missing,
    or the node does not answer.
    """
    missing = [name for name in ("rclpy", "efftam_ros.msg") if importlib.util.find_spec(name) is None]
    if missing:
        remedy = "source .venv/setup.bash or your workspace"
        raise InputError(f"--node needs ROS 2 and the built messages ({missing[0]} is missing); {remedy}")
    given = {"backend": args.backend, "threads": args.threads}
    given |= {} if args.bundle is None else {"bundle": args.bundle.resolve()}
    parameters = [argument for name, value in given.items() for argument in ("-p", f"{name}:={value}")]
    node = [sys.executable, "-c", TRACKER, "--ros-args", *parameters, "--log-level", "error"]
    return feed_node(node, args.image, NODE_SECONDS, "--profile", package_file(PROFILE) or "")


def feed_node(
    node: list[str], size: tuple[int, int], seconds: float, *options: object, environment: Any = None
) -> dict[str, Any]:
    """Run `bench.latency.feed` and the node in separate processes and return the result of `feed`.

    ``options``: further options of `bench.latency`. Raises InputError if the measurement fails, for example
    because the node does not answer.
    """
    command = ["-m", "efftam_workshop.bench.latency", "--seconds", seconds, "--size", *size, *options, "--"]
    process = [sys.executable, *map(str, command), *node]
    done = subprocess.run(process, env=environment, capture_output=True, text=True)
    if done.returncode:
        error = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise InputError(f"the node could not be measured: {''.join(error) or 'no output'}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def table(report: dict[str, Any]) -> tuple[list[str], list[list[Cell]]]:
    """Return headers and rows of the table for a report of stages, of a soak or of the node."""
    if stages := report.get("stages"):
        whole = stages["whole frame"]["median_ms"]
        names = sorted(set(stages) - set(TOTALS), key=lambda name: -stages[name]["median_ms"])
        return ["stage", "median, ms", "p99, ms", "share"], [
            [
                name,
                *stages[name].values(),
                None if name == A_CROP else f"{stages[name]['median_ms'] / whole:.0%}",
            ]
            for name in (*names, *TOTALS)
        ]
    if soak := report.get("soak"):
        return [f"{soak['frames']} frames", "start", "end"], [
            ["resident memory, MB", *soak["resident_mb"]],
            ["GPU memory in use, MB", *soak["device_mb"]],
            ["whole frame, ms", *soak["whole_ms"]],
        ]
    node = report["node"]
    return [f"{node['answered']} of {node['sent']} images answered", "median, ms", "p99, ms"], [
        ["published to bbox", node["p50_ms"], node["p99_ms"]],
        ["callback to bbox", node["callback_p50_ms"], node["callback_p99_ms"]],
    ]
