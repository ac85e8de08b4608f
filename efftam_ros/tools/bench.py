"""Measure what a frame costs, and print each figure beside its goal.

Without --node, --soak or --motion: times of each module and of the whole frame, all back ends and bundles
side by side, frame by frame in turn, in one process, after a warm-up that fills the memory. The policy is by
default the one that remembers every frame, so that every frame runs all four modules.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from efftam_ros.core.config import POLICIES, VIEWS
from efftam_ros.core.contract import InputRefused
from efftam_ros.runtime.pipeline import BACKENDS, DEFAULT_BACKEND
from efftam_ros.tools.bench_frames import WARM_UP, Contender, Timing, measure_frames, open_contenders
from efftam_ros.tools.bench_motion import LOST_SHARE, measure_motion
from efftam_ros.tools.bench_soak import SETTLED, measure_soak
from efftam_ros.tools.package_files import package_file
from efftam_ros.tools.table import Cell, print_table

GLUE_GOAL, TORCH_GOAL = 1.05, 2.0
NODE_GOAL_MS, MEMORY_GOAL_MB, VELOCITY_GOAL = 5.0, 5.0, 0.05
FRAMES = 100
NODE_SECONDS = 12.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_argument_group("what to measure (default: frames)")
    what.add_argument(
        "--frames", type=int, metavar="N", help=f"measured frames of each contender (default {FRAMES})"
    )
    what.add_argument(
        "--soak", type=int, metavar="N", help="N frames of the first contender: memory and drift"
    )
    what.add_argument(
        "--node", action="store_true", help="image callback to bbox published, over the middleware"
    )
    what.add_argument(
        "--motion", action="store_true", help="velocity error on a synthetic target, without a network"
    )
    who = parser.add_argument_group("contenders (every combination)")
    who.add_argument(
        "--bundle", action="append", type=Path, metavar="DIR", help="repeatable (default: the shipped one)"
    )
    who.add_argument("--backend", default=DEFAULT_BACKEND, metavar="A,B", help=f"of {', '.join(BACKENDS)}")
    who.add_argument(
        "--threads", type=int, default=0, metavar="N", help="CPU threads of each (default: one per core)"
    )
    who.add_argument("--policy", choices=POLICIES, default="efficienttam", help="default efficienttam")
    who.add_argument("--view", choices=VIEWS, help="default: what the bundle asks for")
    output = parser.add_argument_group("output")
    output.add_argument(
        "--json", type=Path, metavar="FILE", help="all figures; - for stdout instead of tables"
    )
    output.add_argument("--plot", type=Path, metavar="FILE.png", help="bars of the time in each module")
    output.add_argument("--quiet", action="store_true", help="no progress bar")


def run(args: argparse.Namespace) -> int:
    for option in ("frames", "soak"):
        value = getattr(args, option)
        if value is not None and value < 1:
            raise InputRefused(f"--{option} is {value}; it must be at least 1")
    if args.soak is not None and args.soak < 4:
        raise InputRefused(f"--soak is {args.soak}; drift needs at least 4 frames")
    frames = args.frames
    if frames is None and not (args.soak or args.node or args.motion):
        frames = FRAMES
    if args.plot is not None and not frames:
        raise InputRefused("--plot shows the frame times; add --frames N")
    shown = str(args.json) != "-"
    report: dict[str, Any] = {}
    if frames or args.soak:
        _measure_network(args, frames, report, shown)
    if args.motion:
        report["motion"] = [measure_motion(dropped) for dropped in (0.0, LOST_SHARE)]
        if shown:
            _print_motion(report["motion"])
    if args.node:
        report["node"] = _measure_node()
        if shown:
            _print_node(report["node"])
    if args.json is not None:
        text = json.dumps(report, indent=1)
        if shown:
            args.json.write_text(text + "\n", encoding="utf-8")
        else:
            print(text)
    return 0


def _measure_network(
    args: argparse.Namespace, frames: int | None, report: dict[str, Any], shown: bool
) -> None:
    backends = [name for name in args.backend.split(",") if name]
    contenders = open_contenders(args.bundle or [None], backends, args.threads, args.policy, args.view)
    try:
        if frames:
            timings = measure_frames(contenders, frames, quiet=args.quiet)
            report["frames"] = [timing.record(timings) for timing in timings]
            if shown:
                _print_frames(timings, frames)
            if args.plot is not None:
                _plot(args.plot, timings)
        if args.soak:
            report["soak"] = measure_soak(contenders[0], args.soak, quiet=args.quiet)
            if shown:
                _print_soak(contenders[0], report["soak"])
    finally:
        for contender in contenders:
            contender.pipeline.close()


def _print_frames(timings: list[Timing], frames: int) -> None:
    names = list(dict.fromkeys(name for timing in timings for name in timing.medians_ms))
    headers = ["ms, median", "whole", "p99", *names, "glue ratio", "x torch", "maps", "pointers"]
    rows: list[list[Cell]] = []
    for timing in timings:
        stages = [f"{timing.medians_ms[name]:.2f}" if name in timing.medians_ms else None for name in names]
        faster = timing.times_faster_than_torch(timings)
        rows.append(
            [
                timing.name,
                f"{timing.whole_ms:.2f}",
                f"{timing.whole_p99_ms:.2f}",
                *stages,
                timing.glue_ratio,
                None if faster is None else f"{faster:.2f}",
                timing.maps,
                timing.pointers,
            ]
        )
    print_table(headers, rows, title=f"{frames} frames each after {WARM_UP} of warm-up, taken in turn")
    for timing in timings:
        if timing.incomplete:
            missed = f"{timing.incomplete} frames did not run all four modules"
            print(f"{timing.name}: {missed} and are not in the glue ratio")
    print(f"\nglue ratio: whole frame over its four modules; goal at most {GLUE_GOAL} (ti_512x512 on a CPU)")
    print(f"x torch: times faster than the back end torch in this run; goal at least {TORCH_GOAL:g}")


def _print_soak(contender: Contender, soak: dict[str, float]) -> None:
    print(f"\n{contender.name}: {soak['frames']} frames after the first {SETTLED}")
    rows: list[list[Cell]] = [
        [
            "resident memory, MB",
            soak["start_mb"],
            soak["end_mb"],
            f"{soak['growth_mb']:+.1f}",
            f"under {MEMORY_GOAL_MB:g}",
        ],
        ["frame time, ms", soak["first_ms"], soak["last_ms"], f"{100 * soak['drift']:+.1f} %", "none"],
    ]
    print_table(["", "first", "last", "change", "goal"], rows, digits=2)


def _print_motion(results: list[dict[str, float]]) -> None:
    rows = [
        [
            f"{100 * result['dropped']:.0f} %",
            f"{100 * result['error_at_half_second']:.1f} %",
            f"{100 * result['error_after']:.1f} %",
            f"at most {100 * VELOCITY_GOAL:g} %",
        ]
        for result in results
    ]
    first = results[0]
    target = f"{first['speed_px_s']:.0f} px/s at {first['fps']:g} fps, jitter +-2 px"
    title = f"\nvelocity error, {target}, {first['runs']} runs"
    print_table(["frames dropped", "at 0.5 s", "0.5 s to 3 s", "goal"], rows, title=title)


def _measure_node() -> dict[str, Any]:
    try:
        from efftam_ros.ros.latency import measure_latency
    except ModuleNotFoundError as error:
        raise InputRefused(
            f"--node needs ROS 2 and the built messages ({error}); source .venv/setup.bash or your workspace"
        ) from None
    return asdict(measure_latency(NODE_SECONDS, str(package_file("config/fastdds_images.xml") or "")))


def _print_node(result: dict[str, Any]) -> None:
    images = f"{result['answered']} images of {result['width']}x{result['height']} bgr8"
    title = f"\nnode without a network, {images} at {result['fps']:g} Hz"
    rows = [[result["p50_ms"], result["p99_ms"], f"median under {NODE_GOAL_MS:g}", result["lost"]]]
    print_table(
        ["callback to bbox, ms: p50", "p99", "goal", "images lost on the way"], rows, digits=2, title=title
    )


def _plot(path: Path, timings: list[Timing]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(name for timing in timings for name in timing.medians_ms))
    figure, axes = pyplot.subplots(figsize=(8, 1.2 + 0.6 * len(timings)), layout="constrained")
    labels = [timing.name for timing in timings]
    left = [0.0] * len(timings)
    for name in [*names, "the rest"]:
        if name == "the rest":
            widths = [max(0.0, t.whole_ms - done) for t, done in zip(timings, left, strict=True)]
        else:
            widths = [t.medians_ms.get(name, 0.0) for t in timings]
        axes.barh(labels, widths, left=left, label=name, color="lightgrey" if name == "the rest" else None)
        left = [done + width for done, width in zip(left, widths, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("ms per frame (medians)")
    axes.legend(fontsize="small", ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.25))
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
