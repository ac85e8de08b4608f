"""Times from image to box of this package's tracker ("ours") and of peers, measured in turns.

Images are drawn (`efftam_workshop.bench.moving_target`). Each tracker is called by its own interface. The
time of ours includes the storing of memory.
followed: the target is in view. searched: the target has been absent for so long that ours searches the whole
image; peers work as before.
of ours: the time divided by that of ours.
cores: number of processors of this computer to which all threads of a tracker are bound.
others: share of the computer's processor time that other programs used meanwhile. It makes times longer.
Trackers are measured in turns, so that this is about the same for each.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.contenders import Contender, opened, ours, theirs
from benchmarks.peers.registry import open_peer
from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.errors import InputError
from efftam_ros.core.types import Frame, Image
from efftam_ros.runtime.backends import DEFAULT_BACKEND, PipelineConfig
from efftam_ros.runtime.bundle import Bundle
from efftam_ros.runtime.opening import open_pipeline
from efftam_ros.tools.common.options import open_bundle
from efftam_ros.tools.common.outputs import Output, check_outputs, write_text
from efftam_ros.tools.common.terminal import Cell, print_table, progress_bar
from efftam_workshop.bench.frames import WARM_UP, Frames, drawn_frames
from efftam_workshop.bench.moving_target import PERIOD_NS, background

CORES, SIZES = (1, 2), ((640, 360), (1280, 720))
PHASES = ("followed", "searched")
TURN = 5
"""Counted frames of a turn; one frame before them is not counted."""
ABSENT = 45
"""Number of images without the target before the search is timed. The target is LOST after a second."""


class Turns(NamedTuple):
    """Times of one tracker in one phase.

    ``seconds``: time of each counted frame, s. ``others``: share of the computer's processor time that other
    programs used meanwhile.
    """

    seconds: list[float]
    others: float


def measure(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure all trackers. Returns a row for each number of cores, size of the image and tracker."""
    processors = sorted(os.sched_getaffinity(0))
    if len(processors) < max(CORES):
        raise InputError(f"this process may use {len(processors)} processor; {max(CORES)} are needed")
    bundle, rows = open_bundle(args.bundle[0] if args.bundle else None), []
    with progress_bar(len(CORES) * len(SIZES), "peers", unit="run", quiet=args.quiet) as bar:
        for cores, size in itertools.product(CORES, SIZES):
            # Threads inherit the processors of the thread that starts them, so this binds a tracker's too.
            os.sched_setaffinity(0, processors[:cores])
            try:
                rows += _measure_one(args, bundle, cores, size)
            finally:
                os.sched_setaffinity(0, processors)
            bar.update()
    return rows


def _measure_one(
    args: argparse.Namespace, bundle: Bundle, cores: int, size: tuple[int, int]
) -> list[dict[str, Any]]:
    frames = drawn_frames(size)
    first = next(frames)
    makers = [partial(_ours, bundle, cores)]
    makers += [partial(_theirs, name, args.peer_models, cores) for name in args.peers]
    contenders: list[Contender] = []
    try:
        contenders += (opened(make, first) for make in makers)
        _step_all(contenders, itertools.islice(frames, WARM_UP))
        followed = _in_turns(contenders, frames, args.frames, cores)
        absent = _without_target(frames, size)
        _step_all(contenders, itertools.islice(absent, ABSENT))
        searched = _in_turns(contenders, absent, args.frames, cores)
    finally:
        for contender in contenders:
            contender.close()
    rows = []
    for number, contender in enumerate(contenders):
        row: dict[str, Any] = {"cores": cores, "image": list(size), "name": contender.name}
        for phase, turns in zip(PHASES, (followed, searched), strict=True):
            median, base = (float(np.median(turns[one].seconds)) for one in (number, 0))
            row[phase] = {"ms": 1e3 * median, "of_ours": median / base, "others": turns[number].others}
        rows.append(row)
    return rows


def _ours(bundle: Bundle, threads: int) -> Contender:
    pipeline = open_pipeline(PipelineConfig(threads=threads), bundle)
    return ours(pipeline, DEFAULT_BACKEND, TrackerConfig())


def _theirs(name: str, models: Path | None, threads: int) -> Contender:
    return theirs(open_peer(name, models, threads))


def _step_all(contenders: Sequence[Contender], frames: Iterator[Any]) -> None:
    for frame, prompt in frames:
        for contender in contenders:
            contender.step(frame, prompt)


def _in_turns(contenders: Sequence[Contender], frames: Frames, count: int, cores: int) -> list[Turns]:
    seconds: list[list[float]] = [[] for _ in contenders]
    others: list[list[float]] = [[] for _ in contenders]
    for turn in range(-(-count // TURN)):
        taken = list(itertools.islice(frames, 1 + TURN))
        for number in np.roll(range(len(contenders)), -turn):
            step, busy = contenders[number].step, _busy_s()
            own, start = time.process_time(), time.perf_counter()
            for index, (frame, prompt) in enumerate(taken):
                before = time.perf_counter()
                step(frame, prompt)
                seconds[number] += [time.perf_counter() - before] if index else []
            whole, own = time.perf_counter() - start, time.process_time() - own
            others[number].append((_busy_s() - busy - own) / (whole * (os.cpu_count() or 1)))
    return [Turns(one, max(0.0, float(np.mean(share)))) for one, share in zip(seconds, others, strict=True)]


def _without_target(frames: Frames, size: tuple[int, int]) -> Frames:
    ground = background(size)
    last, _ = next(frames)
    for number in itertools.count(1):
        yield Frame(Image.from_array(ground.copy()), last.stamp_ns + number * PERIOD_NS), None


def _busy_s() -> float:
    """Return the processor time that all programs have used since this computer started, s; 0 if unknown."""
    try:
        ticks = list(map(int, Path("/proc/stat").read_text(encoding="ascii").split("\n")[0].split()[1:9]))
    except OSError:
        return 0.0
    user, nice, system, _idle, _waiting, interrupts, soft, stolen = ticks
    return (user + nice + system + interrupts + soft + stolen) / os.sysconf("SC_CLK_TCK")


def run(args: argparse.Namespace) -> int:
    if args.folders:
        raise InputError(f"--time draws its images; leave out {args.folders[0]}")
    if args.timed_frames < 1:
        raise InputError(f"--frames is {args.timed_frames}; it must be at least 1")
    check_outputs([Output("--json", args.json)])
    args.frames = args.timed_frames
    rows = measure(args)
    text = json.dumps({"frames": args.frames, "times": rows}, indent=1)
    if str(args.json) == "-":
        print(text)
        return 0
    print_table(*table(rows), digits=2, title=f"median of {args.frames} frames each, in turns of {TURN}")
    if args.json is not None:
        write_text(args.json, text + "\n")
    return 0


def table(rows: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[Cell]]]:
    """Return the headers and the rows of a table of the results of `measure`."""
    headers = ["cores", "image", "tracker"]
    for phase in PHASES:
        headers += [f"{phase}, ms", "of ours"]
    return [*headers, "others"], [
        [
            row["cores"],
            "x".join(map(str, row["image"])),
            row["name"],
            *(row[phase][what] for phase in PHASES for what in ("ms", "of_ours")),
            max(row[phase]["others"] for phase in PHASES),
        ]
        for row in rows
    ]
