"""Frame times of back ends, PyTorch baselines, policies and peers, measured in turns on the same images.

The default policy is efficienttam: it stores every frame, so that every frame runs all four modules of the
network. The columns are:
whole: time from decoded image to box, in back-to-back frames. On a GPU a frame includes the memory encoder
of the frame before, and the column memory_encoder shows the time of that one.
glue ratio: time of the whole frame divided by the sum of its four modules.
relative: time of the whole frame divided by that of the first contender.
x NAME: how many times faster than the PyTorch baseline NAME.
start-up: time from opening to the first result.
resident MB: growth of the process by opening and warming up. The first contender that uses a library includes
the loading of the library.
device MB: memory on the GPU, as reported by the pipeline.
how: whether modules are launched as CUDA graphs.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.backends import BASELINES, MEASURABLE
from benchmarks.contenders import Contender, open_contenders, opened, theirs
from benchmarks.frames import TURN, measure_frames
from benchmarks.peers.registry import add_peer_arguments, open_peer
from efftam_ros.core.config import POLICIES, VIEWS, TrackerConfig
from efftam_ros.core.errors import InputError
from efftam_ros.runtime.backends import DEFAULT_BACKEND
from efftam_ros.tools.common.options import add_quiet_argument, add_threads_argument, list_of
from efftam_ros.tools.common.outputs import Output, check_outputs, write_text
from efftam_ros.tools.common.terminal import Cell, print_table
from efftam_ros.tools.doctor.checks import environment
from efftam_workshop.bench.command import image_size
from efftam_workshop.bench.frames import WARM_UP, drawn_frames


def add_arguments(parser: argparse.ArgumentParser) -> None:
    who = parser.add_argument_group("contenders (every combination)")
    text = "network bundle; may be repeated (default: the shipped one)"
    who.add_argument("--bundle", action="append", type=Path, metavar="DIR", help=text)
    names = f"some of {', '.join(MEASURABLE)}"
    who.add_argument(
        "--backend", type=list_of(MEASURABLE), default=[DEFAULT_BACKEND], metavar="A,B", help=names
    )
    text = "skip back ends that can't run here, with the reason"
    who.add_argument("--skip-unavailable", action="store_true", help=text)
    add_threads_argument(who)
    text = "GPU back ends read images from host memory (default: copy them)"
    who.add_argument("--zero-copy", action="store_true", help=text)
    text = f"some of {', '.join(POLICIES)} (default efficienttam)"
    who.add_argument("--policy", type=list_of(POLICIES), default=["efficienttam"], metavar="A,B", help=text)
    who.add_argument("--view", choices=VIEWS, default="bundle", help="default: that of the bundle")
    add_peer_arguments(who)
    parser.add_argument(
        "--frames", type=int, default=100, metavar="N", help="counted frames of each contender (100)"
    )
    parser.add_argument(
        "--image", type=image_size, default=(1280, 720), metavar="WxH", help="size of images (1280x720)"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write all figures; - for stdout, without tables"
    )
    add_quiet_argument(parser)


def run(args: argparse.Namespace) -> int:
    if args.frames < 1:
        raise InputError(f"--frames is {args.frames}; it must be at least 1")
    check_outputs([Output("--json", args.json)])
    # The frames are made before any contender is opened: their memory must not count as a contender's.
    frames = drawn_frames(args.image)
    first = next(frames)
    contenders, left_out = open_contenders(
        args.bundle or [None],
        args.backend,
        [TrackerConfig(policy=policy, view=args.view) for policy in args.policy],
        first,
        threads=args.threads,
        skip_unavailable=args.skip_unavailable,
        zero_copy=args.zero_copy,
    )
    try:
        for name in args.peers:
            contenders.append(opened(partial(_peer, name, args.peer_models, args.threads), first))
        measure_frames(contenders, frames, args.frames, quiet=args.quiet)
        report = {
            "environment": environment(),
            "zero_copy": args.zero_copy,
            "image": list(args.image),
            "left_out": [one._asdict() for one in left_out],
            "frames": [one.record(contenders) for one in contenders],  # read while pipelines are open
        }
    finally:
        for contender in contenders:
            contender.close()
    if str(args.json) == "-":
        print(json.dumps(report, indent=1))
    else:
        for one in left_out:
            print(f"left out: {one.text}; {one.remedy}")
        print_frames(report["frames"])
        if args.json is not None:
            write_text(args.json, json.dumps(report, indent=1) + "\n")
    return 0


def _peer(name: str, models: Path | None, threads: int) -> Contender:
    return theirs(open_peer(name, models, threads))


def print_frames(runs: Sequence[Mapping[str, Any]]) -> None:
    """Print a table of times, then one of start-up times and memory.

    ``runs``: results of `Contender.record`.
    """
    names = list(dict.fromkeys(name for one in runs for name in one["stages_ms"]))
    baselines = [name for name in BASELINES if any(one["backend"] == name for one in runs)]
    rows: list[list[Cell]] = [
        [
            one["name"],
            one["whole_ms"],
            one["whole_p99_ms"],
            one["relative"],
            *(one["stages_ms"].get(name) for name in names),
            one["glue_ratio"],
            *(one["times_faster_than"].get(name) for name in baselines),
        ]
        for one in runs
    ]
    how = f"in turns of {TURN}" if len(runs) > 1 else "back to back"
    title = f"{runs[0]['frames']} frames each after {WARM_UP} of warm-up, {how}"
    headers = ["ms, median", "whole", "p99", "relative", *names, "glue ratio"]
    print_table([*headers, *(f"x {name}" for name in baselines)], rows, digits=2, title=title)
    for one in runs:
        if one["incomplete_frames"]:
            missed = f"{one['incomplete_frames']} frames did not run all four modules"
            print(f"{one['name']}: {missed} and are not in the glue ratio")
    print()
    headers = ["", "start-up, s", "resident MB", "device MB", "maps", "pointers", "how"]
    facts = ("start_up_s", "resident_mb", "device_mb", "maps", "pointers")
    rows = [[one["name"], *(one[name] for name in facts), launch_summary(one["launch"])] for one in runs]
    print_table(headers, rows, digits=1)
    for one in runs:
        for module, launched in one["launch"].items():
            if ":" in launched:
                print(f"{one['name']}, {module}: {launched}")


def launch_summary(launch: Mapping[str, str]) -> str | None:
    """Return how the modules are launched, such as "cuda graph" or "3 cuda graph, 1 plain launches".

    ``launch``: description for each module. None if there are no modules.
    """
    kinds = Counter(how.partition(":")[0] for how in launch.values())
    if len(kinds) < 2:
        return next(iter(kinds), None)
    return ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
