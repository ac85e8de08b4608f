"""Evaluate returns after disappearances that are simulated on real clips, and wrong claims.

The first box is jittered as in `efftam eval --repeats`. Rules of the tracker are tuned on one half of the
footage and reported on the other. A hash of the scene's name determines its half.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError
from efftam_ros.runtime.opening import open_pipeline, open_targets
from efftam_ros.tools.common.options import (
    add_network_arguments,
    add_tracker_arguments,
    pipeline_config,
    tracker_config,
)
from efftam_ros.tools.common.terminal import Cell, print_table, progress_bar
from efftam_workshop.eval.command import jittered
from training.disappearance import Follower, Judgement, TrackerFollower, Verdict, score
from training.reacquisition.cases import KINDS, Case, Film, make_cases
from training.reacquisition.footage import HALVES, Footage, find_footage

REGAIN_S = 1.0
HEADERS = ("cases", "number", "regained in 1 s", "wrong", "absent claimed", "lost before", "AO")


@dataclass(frozen=True)
class Result:
    """A tracker's result for one case."""

    name: str
    half: str
    kind: str
    verdict: Verdict


def run_case(follower: Follower, case: Case, texture: NDArray[np.uint8]) -> Result | None:
    """Run a tracker over a case; None if the target does not actually disappear in it."""
    film = Film(case, texture)
    one, start = film.disappearance, film.truth[0].box
    if one is None or start is None:
        return None
    claims = []
    first = jittered(start, case.name, 1)
    for index, (picture, stamp_ns) in enumerate(film):
        claims.append(follower(picture, stamp_ns, first if index == 0 else None))
    verdict = score(film.truth, [one], case.footage.fps, claims, REGAIN_S)
    return Result(case.name, case.half, case.kind, verdict)


def texture_for(case: Case, clips: Sequence[Footage]) -> NDArray[np.uint8]:
    """Return an image of another scene of the same half. Raises InputError if there is none."""
    others = [clip for clip in clips if clip.half == case.half and clip.scene != case.footage.scene]
    if not others:
        raise InputError(f"no other scene than {case.footage.scene} in the half {case.half}; give more clips")
    return others[case.seed % len(others)].pictures([0])[0]


def chosen(cases: Sequence[Case], half: str, subset: int) -> list[Case]:
    """Return the cases of a half, or about ``subset`` of them spread over the kinds; 0: all."""
    of_half = [case for case in cases if half in ("both", case.half)]
    if not 0 < subset < len(of_half):
        return of_half
    by_kind = sorted(of_half, key=lambda case: (KINDS.index(case.kind), case.seed))
    return [by_kind[int(i)] for i in np.linspace(0, len(by_kind) - 1, subset)]


def print_figures(results: Sequence[Result], title: str) -> None:
    """Print the table with one row per half and kind."""
    print_table(HEADERS, figure_rows(results), title=title)


def figure_rows(results: Sequence[Result]) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for half in HALVES:
        for kind in (*KINDS, "all"):
            of = [r.verdict for r in results if r.half == half and kind in ("all", r.kind)]
            if of:
                rows.append([f"{half}, {kind}", *_cells(Judgement(tuple(of)))])
    return rows


def _cells(judged: Judgement) -> list[Cell]:
    return [
        len(judged.verdicts),
        judged.regained,
        judged.wrong,
        1 - judged.specificity,
        judged.lost_before,
        judged.ao,
    ]


def record(results: Sequence[Result]) -> dict[str, Any]:
    """Return the results as JSON values; unknown numbers are None."""
    halves = {}
    for half in HALVES:
        of = Judgement(tuple(r.verdict for r in results if r.half == half))
        if of.verdicts:
            figures = {k: _or_none(v) for k, v in of.figures().items()}
            halves[half] = {
                "cases": len(of.verdicts),
                "absent_claimed": _or_none(1 - of.specificity),
                **figures,
            }
    return {"halves": halves, "cases": [_case_record(r) for r in results]}


def _case_record(result: Result) -> dict[str, Any]:
    (one,) = result.verdict.returns
    figures = asdict(one)
    figures["regained_after_s"] = _or_none(one.regained_after_s)
    verdict = {k: v for k, v in asdict(result.verdict).items() if k != "returns"}
    return {"name": result.name, "half": result.half, **verdict, **figures}


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="folders of clips")
    parser.add_argument("--half", choices=(*HALVES, "both"), default="both", help="default %(default)s")
    parser.add_argument(
        "--subset", type=int, default=0, metavar="N", help="use about N cases of the half; 0: all"
    )
    parser.add_argument(
        "--repeats",
        type=int,
        default=1,
        metavar="N",
        help="uses of each case, with another camera path, start and length; default %(default)s",
    )
    parser.add_argument("--only", metavar="TEXT", help="use cases with TEXT in their name")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes; default %(default)s")
    parser.add_argument("--cases", action="store_true", help="print a line for each case, too")
    add_network_arguments(parser)
    add_tracker_arguments(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run(args: argparse.Namespace) -> int:
    clips = find_footage(args.folders)
    cases = chosen(make_cases(clips, args.repeats), args.half, args.subset)
    cases = [case for case in cases if args.only is None or args.only in case.name]
    if not cases:
        raise InputError(
            f"no case left of {len(clips)} clips; give more folders, or another --half or --only"
        )
    results = []
    parts = [cases[i :: args.jobs] for i in range(max(1, args.jobs))]
    with progress_bar(len(cases), "cases", unit="case", quiet=args.quiet) as bar:
        for result in _all_results(args, parts, clips):
            bar.update()
            if result is not None:
                results.append(result)
                if args.cases:
                    print(_line(result), flush=True)
    print_figures(results, f"disappearances on real footage, policy {args.policy or 'default'}")
    if args.json is not None:
        args.json.write_text(json.dumps(record(results), indent=1) + "\n", encoding="utf-8")
    return 0


def _all_results(
    args: argparse.Namespace, parts: list[list[Case]], clips: Sequence[Footage]
) -> Iterable[Result | None]:
    if len(parts) == 1:
        yield from _results(args, parts[0], clips)
        return
    with get_context("spawn").Pool(len(parts)) as pool:
        for found in pool.imap_unordered(_part, [(args, part, clips) for part in parts]):
            yield from found


def _part(work: tuple[argparse.Namespace, list[Case], Sequence[Footage]]) -> list[Result | None]:
    args, cases, clips = work
    return list(_results(args, cases, clips))


def _results(
    args: argparse.Namespace, cases: list[Case], clips: Sequence[Footage]
) -> Iterable[Result | None]:
    cv2.setNumThreads(args.threads)
    pipeline = open_pipeline(pipeline_config(args))
    config = tracker_config(args.settings, policy=args.policy, view=args.view)
    try:
        follower = TrackerFollower(open_targets(pipeline, config))
        for case in cases:
            yield run_case(follower, case, texture_for(case, clips))
    finally:
        pipeline.close()


def _line(result: Result) -> str:
    (one,) = result.verdict.returns
    verdict = result.verdict
    word = "lost before" if one.lost_before else "regained" if one.regained else "missed"
    after = "" if math.isnan(one.regained_after_s) else f" after {one.regained_after_s:.1f} s"
    wrong = ", wrong" if one.wrong else ""
    claimed = f", absent claimed {verdict.claimed_absent}/{verdict.absent}" if verdict.claimed_absent else ""
    facts = f"{word}{after}{wrong}{claimed}, AO {verdict.ao:.2f}"
    return f"{result.half:10}{result.name:36}{one.hidden_s:5.1f} s  {facts}"
