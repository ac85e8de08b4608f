"""Follows a target in a simulated flight with a rendered camera, real nodes and a moving gimbal.

A drone with a gimbal camera circles over a road. A car drives on the road, and another car that looks the
same drives the other way. A bridge and houses hide the target at times. The pictures are published to
efftam_tracker. A simulated ground station selects a box by MAVLink. efftam_gimbal steers through
efftam_mavlink and a stand-in of the autopilot. The gimbal moves, and the next picture is rendered from its
new direction.

The results are flight.mp4, tracks.png, summary.json and the logs of all processes.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from efftam_ros.core.config import CAMERA_MOTIONS
from efftam_ros.core.errors import InputError
from efftam_ros.tools.common.options import add_network_arguments, add_quiet_argument, open_bundle
from efftam_ros.tools.common.outputs import Output, check_outputs, write_text
from efftam_ros.tools.common.terminal import print_table, progress_bar

FLAVOURS = ("px4", "ardupilot")
RENDERERS = ("p3tinydisplay", "p3headlessgl")
# (import name of a package, why it is needed and how it is installed)
NEEDED = (
    ("panda3d", "it renders the camera's picture; run: pip install panda3d"),
    ("pymavlink", "the bridge uses MAVLink; run: pip install pymavlink"),
    ("av", "it writes the video; run: pip install av"),
    ("matplotlib", "it draws the plot; run: pip install matplotlib"),
    ("rclpy", "the nodes are ROS 2's; source your workspace, or .venv/setup.bash"),
    ("efftam_ros.msg", "the messages are not built: see CONTRIBUTING.md, or colcon build and source it"),
)
MAX_S = 3600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("flight")
    group.add_argument(
        "--autopilot", choices=FLAVOURS, default="px4", help="whose behaviour the stand-in has (default px4)"
    )
    group.add_argument(
        "--camera-motion",
        choices=CAMERA_MOTIONS,
        default="auto",
        help="source of the camera's motion: the images (auto), or none (off) (default auto)",
    )
    add_scene_arguments(parser.add_argument_group("scene and camera"))
    group = parser.add_argument_group("output")
    group.add_argument(
        "--out",
        type=Path,
        default=Path("flight_demo"),
        metavar="DIR",
        help="folder of the results (default %(default)s)",
    )
    group.add_argument("--json", action="store_true", help="print the figures as JSON instead of a table")
    group.add_argument("--no-video", action="store_true", help="leave out the video")
    add_quiet_argument(group, "no progress bars, and no lines in their place where there is no terminal")
    add_network_arguments(parser)


def add_scene_arguments(group: argparse._ActionsContainer) -> None:
    """Add the options of the scene: --seconds, --seed, --fps, --size and --renderer."""
    text = "how long the target is followed, s (default 60)"
    group.add_argument("--seconds", type=float, default=60.0, help=text)
    group.add_argument("--seed", type=int, default=4, help="decides where houses and trees are (default 4)")
    group.add_argument("--fps", type=float, default=20.0, help="pictures per second, 1 to 60 (default 20)")
    text = "size of the picture, px (default 640x360)"
    group.add_argument("--size", type=_size, default=(640, 360), metavar="WxH", help=text)
    group.add_argument(
        "--renderer",
        choices=RENDERERS,
        default="p3tinydisplay",
        help="panda3d's own software (p3tinydisplay, default) or OpenGL without a display (p3headlessgl):"
        " smoother, and slower without a GPU",
    )


def run(args: argparse.Namespace) -> int:
    _check(args)
    args.out.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=".pictures.", dir=args.out))
    try:
        cpu_percent = _fly(args, folder)
        report = _evaluate(args, folder, cpu_percent)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    written = ["tracks.png", "summary.json", *([] if args.no_video else ["flight.mp4"])]
    if args.json:
        print(json.dumps(report, indent=1))
    print("wrote " + ", ".join(str(args.out / name) for name in sorted(written)), file=sys.stderr)
    return 0


def _check(args: argparse.Namespace) -> None:
    """Raise InputError for arguments, packages or files with which the flight would fail later."""
    if not 5.0 <= args.seconds <= MAX_S:
        raise InputError(f"--seconds is {args.seconds:g}; give 5 to {MAX_S:g}")
    if not 1.0 <= args.fps <= 60.0:
        raise InputError(f"--fps is {args.fps:g}; give 1 to 60 (default 20)")
    for name, remedy in NEEDED:
        if importlib.util.find_spec(name) is None:
            raise InputError(f"the Python package {name} is missing for {sys.executable}: {remedy}")
    open_bundle(args.bundle)
    check_outputs([Output("--out", args.out, "folder")])


def _size(text: str) -> tuple[int, int]:
    width, _, height = text.partition("x")
    if not (width.isdecimal() and height.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not WxH, such as 640x360")
    if not (160 <= int(width) <= 1920 and 90 <= int(height) <= 1080):
        raise argparse.ArgumentTypeError(f"{text!r} is outside 160x90 to 1920x1080")
    return int(width), int(height)


def _fly(args: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Run the processes until the flight has ended. Return the mean CPU load of each process while it
    followed the target, % of one core."""
    from simulation.processes import (
        LINKS,
        NAMESPACE,
        SIMULATION,
        Processes,
        ended_together,
        free_port,
        node_words,
    )

    ours, theirs = LINKS[args.autopilot]
    port = free_port(args.autopilot)
    logs = args.out / "logs"
    logs.mkdir(exist_ok=True)
    tracker = {name: getattr(args, name) for name in ("backend", "precision", "threads", "camera_motion")}
    if args.bundle is not None:
        tracker["bundle"] = str(args.bundle.resolve())
    bridge = {"links": f"{ours}:127.0.0.1:{port}"}
    simulation = [sys.executable, "-m", "simulation", "vehicle", args.autopilot]
    simulation += ["--companion", f"{theirs}:127.0.0.1:{port}", "--folder", str(folder)]
    simulation += ["--seconds", str(args.seconds), "--fps", str(args.fps), "--seed", str(args.seed)]
    simulation += ["--size", "x".join(map(str, args.size)), "--renderer", args.renderer]
    simulation += ["--namespace", NAMESPACE]
    first: dict[str, float] = {}
    last: dict[str, float] = {}
    flown_s = 0.0
    with ended_together(Processes(logs)) as processes:
        processes.start("tracker", node_words("tracker", tracker, "tracker.yaml"))
        processes.start("bridge", node_words("mavlink", bridge, "flight.yaml"))
        processes.start("gimbal", node_words("gimbal", {}, "flight.yaml"))
        processes.start(SIMULATION, simulation)
        with progress_bar(math.ceil(args.seconds), "starting", unit="s", quiet=args.quiet) as bar:
            last_phase = ""
            for phase, seconds in processes.words():
                if phase != last_phase:
                    _report_phase(phase, args)
                last_phase = phase
                bar.set_description(phase)
                if phase == "following":
                    bar.update(int(seconds) - bar.n)
                    last, flown_s = processes.cpu_s(), seconds
                    first = first or last
    return load_percent(first, last, flown_s)


def _report_phase(phase: str, args: argparse.Namespace) -> None:
    """Print a phase on stderr where no progress bar is shown, as in a log or a pipe."""
    if args.quiet or sys.stderr.isatty():
        return
    duration = f", {args.seconds:g} s" if phase == "following" else ""
    print(f"flight: {phase}{duration}", file=sys.stderr, flush=True)


def load_percent(first: Mapping[str, float], last: Mapping[str, float], seconds: float) -> dict[str, float]:
    """Return the mean load of each process, % of one core. ``first``, ``last``: its CPU times at the begin
    and at the end, s. ``seconds``: the time between them."""
    return {name: 100.0 * (last[name] - first[name]) / seconds for name in last}


def _evaluate(args: argparse.Namespace, folder: Path, cpu_percent: dict[str, float]) -> dict[str, Any]:
    """Write the result files of the flight. Return the report with the options and the figures."""
    from simulation.pictures import write_plot, write_video
    from simulation.record import read_record
    from simulation.results import figures, slowness, summary

    record = read_record(folder)
    found = figures(record, cpu_percent, args.size)
    asked = ("autopilot", "seconds", "seed", "camera_motion", "fps", "renderer", "backend")
    report = {
        "asked": {name: getattr(args, name) for name in asked} | {"size": list(args.size)},
        "figures": asdict(found),
    }
    slow = slowness(found, args.fps)
    if slow:
        print(f"flight: {slow}", file=sys.stderr)
    if not args.json:
        print_table(("figure", "measured"), summary(found))
    write_text(args.out / "summary.json", json.dumps(report, indent=1) + "\n")
    write_plot(args.out / "tracks.png", record)
    if not args.no_video:
        _report_phase("writing the video", args)
        write_video(args.out / "flight.mp4", record, folder, args.fps, args.quiet)
    return report
