"""Profile a frame by operator, module by module.

Frames, warm-up and policy are those of efftam bench: every frame runs all four modules. Each back end is
measured without a profiler first, then with it. onnxruntime reports the time of each kernel, PyTorch on the
CPU the time until each operator returned and on a GPU the time of each kernel. All times are means over the
frames.

With --timeline the frames of one back end on a GPU are recorded as they run: what the host does, and by CUDA
events when each stage begins and ends on its stream.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from efftam_ros.core.config import VIEWS
from efftam_ros.core.errors import InputError
from efftam_ros.runtime.pipeline import DEFAULT_BACKEND, GPU_BACKENDS
from efftam_ros.tools.bench.contenders import LeftOut, chosen_backends, open_contenders
from efftam_ros.tools.bench.frames import WARM_UP, endless_frames, measure_frames
from efftam_ros.tools.bench.report import print_left_out
from efftam_ros.tools.common.backends import MEASURABLE
from efftam_ros.tools.common.options import add_quiet_argument
from efftam_ros.tools.common.outputs import Output, check_outputs, write_text
from efftam_ros.tools.common.table import Cell, print_table
from efftam_ros.tools.profile.frames import (
    STAGES,
    Profile,
    check_can_profile,
    open_recorder,
    profile_frames,
)
from efftam_ros.tools.profile.timeline import draw_timeline, print_timeline, record_timeline
from efftam_ros.tools.profile.trace import BETWEEN

FRAMES, TOP = 20, 15
POLICY = "efficienttam"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bundle", type=Path, metavar="DIR", help="folder (default: the shipped bundle)")
    parser.add_argument(
        "--backend", default=DEFAULT_BACKEND, metavar="A,B", help=f"of {', '.join(MEASURABLE)}"
    )
    parser.add_argument(
        "--skip-unavailable", action="store_true", help="skip back ends that can't run here, with the reason"
    )
    parser.add_argument(
        "--frames", type=int, default=FRAMES, metavar="N", help=f"recorded frames of each (default {FRAMES})"
    )
    parser.add_argument("--view", choices=VIEWS, help="default: the bundle's")
    parser.add_argument(
        "--threads", type=int, default=0, metavar="N", help="CPU threads (default: one per core)"
    )
    parser.add_argument(
        "--top", type=int, default=TOP, metavar="N", help=f"operators to print (default {TOP})"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="all operators; - for stdout instead of tables"
    )
    parser.add_argument(
        "--trace", type=Path, metavar="FOLDER", help="keep the raw traces there, for chrome://tracing"
    )
    text = "instead of operators: what host and GPU do when in a tracked frame, as text and as a picture"
    parser.add_argument("--timeline", type=Path, metavar="FILE.png", help=text)
    add_quiet_argument(parser)


def run(args: argparse.Namespace) -> int:
    for option in ("frames", "top"):
        value = getattr(args, option)
        if value < 1:
            raise InputError(f"--{option} is {value}; it must be at least 1")
    check_outputs(
        [
            Output("--json", args.json),
            Output("--trace", args.trace, "folder"),
            Output("--timeline", args.timeline, "picture"),
        ]
    )
    backends = chosen_backends(args.backend)
    if args.timeline is not None:
        return _run_timeline(args, backends)
    check_can_profile(backends)
    profiles, left_out = _profile(args, backends)
    report = {
        "left_out": [asdict(one) for one in left_out],
        "profiles": [profile.record() for profile in profiles],
    }
    if str(args.json) == "-":
        print(json.dumps(report, indent=1))
        return 0
    print_left_out(left_out)
    _print_modules(profiles)
    for profile in profiles:
        _print_operators(profile, args.top)
    if args.json is not None:
        write_text(args.json, json.dumps(report, indent=1) + "\n")
    return 0


def _run_timeline(args: argparse.Namespace, backends: list[str]) -> int:
    if len(backends) != 1 or backends[0] not in GPU_BACKENDS:
        raise InputError(
            f"--timeline shows the streams of a GPU, --backend is {args.backend};"
            f" choose one of {', '.join(GPU_BACKENDS)}"
        )
    scene_frames = endless_frames()
    first = next(scene_frames)
    (contender,), _ = open_contenders([args.bundle], backends, args.threads, [POLICY], args.view, first)
    try:
        frames = itertools.chain([first], scene_frames)
        timeline = record_timeline(contender, frames, args.frames, quiet=args.quiet)
    finally:
        contender.pipeline.close()
    draw_timeline(args.timeline, timeline)
    if str(args.json) == "-":
        print(json.dumps(timeline.record(), indent=1))
        return 0
    print_timeline(timeline)
    if args.json is not None:
        write_text(args.json, json.dumps(timeline.record(), indent=1) + "\n")
    return 0


def _profile(args: argparse.Namespace, backends: list[str]) -> tuple[list[Profile], list[LeftOut]]:
    profiles = []
    with ExitStack() as stack:
        if args.trace is not None:
            folder = args.trace
            folder.mkdir(parents=True, exist_ok=True)
        else:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="efftam_profile_")))
        scene_frames = endless_frames()
        contenders, left_out = open_contenders(
            [args.bundle],
            backends,
            args.threads,
            [POLICY],
            args.view,
            next(scene_frames),
            skip_unavailable=args.skip_unavailable,
        )
        for contender in contenders:
            stack.callback(contender.pipeline.close)
        timings = measure_frames(contenders, scene_frames, args.frames, quiet=args.quiet)
        for contender, timing in zip(contenders, timings, strict=True):
            traces = folder / f"{timing.bundle}_{contender.backend}"
            traces.mkdir(exist_ok=True)
            recorder = open_recorder(contender, args.bundle, args.threads, traces)
            stack.callback(recorder.contender.pipeline.close)
            profiles.append(profile_frames(recorder, timing, args.frames, quiet=args.quiet))
    return profiles, left_out


def _print_modules(profiles: list[Profile]) -> None:
    """Print, for each back end, the time of each module without a profiler and the sum of its operators."""
    headers = ["ms per frame, mean"]
    for profile in profiles:
        headers += [profile.backend, "operators"]
    rows: list[list[Cell]] = []
    for module in (*STAGES, BETWEEN):
        cells: list[Cell] = [module]
        for profile in profiles:
            cells += [profile.stages_ms.get(module), profile.module_ms(module)]
        if any(cell is not None for cell in cells[1:]):
            rows.append(cells)
    whole: list[Cell] = ["whole frame"]
    for profile in profiles:
        whole += [profile.plain_ms, profile.operators_ms]
    title = f"{profiles[0].bundle}: {profiles[0].frames} frames each after {WARM_UP} of warm-up"
    print_table(headers, [*rows, whole], digits=2, title=title)


def _print_operators(profile: Profile, top: int) -> None:
    rows: list[list[Cell]] = [
        [o.module, o.operator, o.where, f"{o.calls:g}", o.ms, f"{100 * o.ms / profile.frame_ms:.1f}"]
        for o in profile.operators[:top]
    ]
    rest = profile.operators[top:]
    if rest:
        ms = sum(o.ms for o in rest)
        calls = f"{sum(o.calls for o in rest):g}"
        rows.append(["", f"{len(rest)} others", "", calls, ms, f"{100 * ms / profile.frame_ms:.1f}"])
    print()
    headers = ["module", "operator", "on", "calls/frame", "ms/frame", "% of frame"]
    print_table(headers, rows, title=profile.contender)
    print(
        f"operators account for {profile.operators_ms:.2f} of {profile.frame_ms:.2f} ms of the profiled frame"
        f" ({100 * profile.explained:.1f} %); without the profiler it takes {profile.plain_ms:.2f} ms"
    )
