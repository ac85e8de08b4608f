"""Measure the time per frame and compare each figure with its goal.

Without --node, --soak, --motion or --python: times of each module and of the whole frame, for all back ends
and bundles in one process, after a warm-up that fills the memory bank. They take turns of a few frames, run
back to back on the same images. The policy is efficienttam unless --policy names others: it stores every
frame, so that every frame runs all four modules. --policy samurai,default compares two of them: samurai does
without the camera's motion and the points on the target, and attends to more maps (see the table).

whole: from decoded image to box, in back-to-back frames. A GPU back end returns before its memory encoder has
run, so each frame includes the rest of the previous one. Its stages are timed by CUDA events in every frame
(the node: in one of 30), and the memory encoder's time is that of the previous frame. On the CPU stages are
host time.
Trackers of other projects (--peers) take turns with ours on the same images; relative: time of a whole frame
as a share of that of the first contender.

start-up: from opening to the first result. resident MB: growth of the process by opening and warming up a
contender; the first one of a library includes loading it. device MB: as reported by the pipeline. how:
whether modules are launched as CUDA graphs.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from efftam_ros.core.config import POLICIES, VIEWS
from efftam_ros.core.errors import InputError
from efftam_ros.interop.package_files import package_file
from efftam_ros.runtime.pipeline import DEFAULT_BACKEND
from efftam_ros.tools.bench.contenders import chosen_backends, open_contenders
from efftam_ros.tools.bench.frames import IMAGE_SIZE, endless_frames, measure_frames
from efftam_ros.tools.bench.idle_gpu import measure_python
from efftam_ros.tools.bench.motion import LOST_SHARE, measure_motion
from efftam_ros.tools.bench.peers import open_peers
from efftam_ros.tools.bench.report import (
    plot,
    print_frames,
    print_left_out,
    print_motion,
    print_node,
    print_python,
    print_soak,
)
from efftam_ros.tools.bench.soak import measure_soak
from efftam_ros.tools.common.backends import MEASURABLE
from efftam_ros.tools.common.options import add_quiet_argument, list_of, open_bundle
from efftam_ros.tools.common.outputs import Output, check_outputs, write_text
from efftam_ros.tools.doctor.machine import environment
from efftam_ros.tools.eval.peers.registry import add_peer_arguments

FRAMES = 100
NODE_SECONDS = 12.0
PYTHON_FRAMES = 300


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_argument_group("what to measure (default: frames)")
    what.add_argument(
        "--frames", type=int, metavar="N", help=f"measured frames of each contender (default {FRAMES})"
    )
    text = "N frames of the first contender: growth of memory and frame time"
    what.add_argument("--soak", type=int, metavar="N", help=text)
    what.add_argument(
        "--node", action="store_true", help="image callback to bbox published, over the middleware"
    )
    what.add_argument(
        "--motion", action="store_true", help="velocity error on a synthetic target, without a network"
    )
    what.add_argument(
        "--python", action="store_true", help="Python of a frame: the tracker on a GPU that does nothing"
    )
    who = parser.add_argument_group("contenders (every combination)")
    who.add_argument(
        "--bundle", action="append", type=Path, metavar="DIR", help="repeatable (default: the shipped one)"
    )
    who.add_argument(
        "--skip-unavailable", action="store_true", help="skip back ends that can't run here, with the reason"
    )
    who.add_argument("--backend", default=DEFAULT_BACKEND, metavar="A,B", help=f"of {', '.join(MEASURABLE)}")
    who.add_argument(
        "--threads", type=int, default=0, metavar="N", help="CPU threads of each (default: one per core)"
    )
    who.add_argument(
        "--zero-copy",
        action="store_true",
        help="GPU back ends read images from host memory (default: copy them)",
    )
    who.add_argument(
        "--policy",
        type=list_of(POLICIES),
        default=["efficienttam"],
        metavar="A,B",
        help=f"of {', '.join(POLICIES)} (default efficienttam)",
    )
    who.add_argument("--view", choices=VIEWS, help="default: the bundle's")
    who.add_argument(
        "--image", type=image_size, default=IMAGE_SIZE, metavar="WxH", help="image size (default 1280x720)"
    )
    add_peer_arguments(who)
    output = parser.add_argument_group("output")
    output.add_argument(
        "--json", type=Path, metavar="FILE", help="all figures; - for stdout instead of tables"
    )
    output.add_argument("--plot", type=Path, metavar="FILE.png", help="bars of the time in each module")
    add_quiet_argument(output)


def run(args: argparse.Namespace) -> int:
    for option in ("frames", "soak"):
        value = getattr(args, option)
        if value is not None and value < 1:
            raise InputError(f"--{option} is {value}; it must be at least 1")
    if args.soak is not None and args.soak < 4:
        raise InputError(f"--soak is {args.soak}; drift needs at least 4 frames")
    frames = args.frames
    if frames is None and not (args.soak or args.node or args.motion or args.python):
        frames = FRAMES
    if args.plot is not None and not frames:
        raise InputError("--plot shows the frame times; add --frames N")
    if args.peers and not frames:
        raise InputError(f"--peers {','.join(args.peers)} shows frame times; add --frames N")
    check_outputs([Output("--json", args.json), Output("--plot", args.plot, "picture")])
    shown = str(args.json) != "-"
    report: dict[str, Any] = {}
    if frames or args.soak:
        report["environment"] = environment()
        _measure_network(args, frames, report, shown)
    if args.motion:
        report["motion"] = [measure_motion(dropped) for dropped in (0.0, LOST_SHARE)]
        if shown:
            print_motion(report["motion"])
    if args.python:
        bundle = open_bundle(args.bundle[0] if args.bundle else None)
        report["python"] = measure_python(bundle, args.image, PYTHON_FRAMES)
        if shown:
            print_python(report["python"])
    if args.node:
        report["node"] = _measure_node()
        if shown:
            print_node(report["node"])
    if args.json is not None:
        text = json.dumps(report, indent=1)
        if shown:
            write_text(args.json, text + "\n")
        else:
            print(text)
    return 0


def image_size(text: str) -> tuple[int, int]:
    """Parse width and height in px from "WxH"."""
    found = re.fullmatch(r"(\d+)x(\d+)", text)
    if found is None or min(int(found[1]), int(found[2])) < 32:
        raise argparse.ArgumentTypeError(f"{text!r} is not WxH of at least 32x32, such as 1280x720")
    return int(found[1]), int(found[2])


def _measure_network(
    args: argparse.Namespace, frames: int | None, report: dict[str, Any], shown: bool
) -> None:
    backends = chosen_backends(args.backend)
    # Before any contender is opened, so that the memory of the frames is not attributed to one.
    scene_frames = endless_frames(args.image)
    first = next(scene_frames)
    contenders, left_out = open_contenders(
        args.bundle or [None],
        backends,
        args.threads,
        args.policy,
        args.view,
        first,
        skip_unavailable=args.skip_unavailable,
        zero_copy=args.zero_copy,
    )
    report["zero_copy"] = args.zero_copy
    report["image"] = list(args.image)
    report["left_out"] = [asdict(one) for one in left_out]
    try:
        if shown:
            print_left_out(left_out)
        if frames:
            peers = open_peers(args.peers, args.peer_models, args.threads, first)
            timings = measure_frames([*contenders, *peers], scene_frames, frames, quiet=args.quiet)
            report["frames"] = [timing.record(timings) for timing in timings]
            if shown:
                print_frames(timings, frames)
            if args.plot is not None:
                plot(args.plot, timings)
        if args.soak:
            name = contenders[0].name
            report["soak"] = {"name": name} | measure_soak(
                contenders[0], scene_frames, args.soak, quiet=args.quiet
            )
            if shown:
                print_soak(name, report["soak"])
    finally:
        for contender in contenders:
            contender.pipeline.close()


def _measure_node() -> dict[str, Any]:
    needed = ("rclpy", "efftam_ros.msg")
    missing = [module for module in needed if importlib.util.find_spec(module) is None]
    if missing:
        raise InputError(
            f"--node needs ROS 2 and the built messages ({missing[0]} is missing); "
            "source .venv/setup.bash or your workspace"
        )
    profile = str(package_file("config/fastdds_images.xml") or "")
    command = ["-m", "efftam_ros.ros.tracker.latency", "--seconds", str(NODE_SECONDS), "--profile", profile]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True)
    if done.returncode:
        raise InputError(f"the node could not be measured: {done.stderr.strip() or done.stdout.strip()}")
    return dict(json.loads(done.stdout.splitlines()[-1]))
