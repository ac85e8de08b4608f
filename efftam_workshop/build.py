"""Build a bundle's TensorRT engines for this GPU and store those that agree with the CPU.

Every engine is compared with the FP32 graph on the CPU, output by output. All engines together are compared
over a clip in which each frame is stored in memory. An engine that deviates is not stored: the report names
its worst output, and a form of the graph with safer precision is built instead. Engines fit one GPU, one
TensorRT version and one bundle; build them again after a change of any of these.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_ros.runtime.backends import ENGINES
from efftam_ros.tools.common.options import add_bundle_argument, add_quiet_argument, open_bundle
from efftam_ros.tools.common.outputs import Output, check_outputs
from efftam_ros.tools.common.terminal import print_table, progress_bar
from efftam_workshop.agreement.reference import CLIP_FRAMES
from efftam_workshop.eval.sequences import find_sequences

if TYPE_CHECKING:
    from tqdm import tqdm

    from efftam_workshop.export.int8 import CalibrationClip


NEEDS = ("onnx", "tqdm")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_bundle_argument(parser)
    parser.add_argument(
        "--precision",
        choices=("auto", *ENGINES.precisions),
        default="auto",
        help="fp16 keeps sensitive operators in FP32; int8 is fp16 with large products in INT8 where that is"
        f" faster here (auto, the default: {ENGINES.auto})",
    )
    parser.add_argument(
        "--calibration",
        type=Path,
        metavar="SEQUENCE",
        help="sequence with boxes that INT8 is calibrated on, 30 frames of it (default: a seeded clip)",
    )
    parser.add_argument(
        "--sequences",
        nargs="+",
        type=Path,
        default=[],
        metavar="FOLDER",
        help="sequences with boxes: refuse INT8 where it costs accuracy there, measured on the CPU first",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of the engines (default: the node's)")
    parser.add_argument("--force", action="store_true", help="build even where stored engines fit")
    parser.add_argument("--json", action="store_true", help="print the reports as JSON")
    add_quiet_argument(parser, "no progress")


def run(args: argparse.Namespace) -> int:
    from efftam_ros.runtime.device.opening import device_session, engine_folder
    from efftam_ros.runtime.tensorrt.engine_set import Calibration, EngineSet
    from efftam_ros.runtime.tensorrt.library import load_library
    from efftam_workshop.eval.int8 import cost_of_int8
    from efftam_workshop.export.tensorrt.engines import EngineBuilder

    precision = ENGINES.resolved(args.precision)
    if precision != "int8" and (args.calibration or args.sequences):
        raise InputError(
            f"--calibration and --sequences are for INT8, the precision is {precision}; leave them out"
        )
    check_outputs([Output("--out", args.out, "folder")])
    bundle = open_bundle(args.bundle)
    clip = _calibration_clip(args.calibration) if precision == "int8" else None
    calibration = None if clip is None else Calibration(clip.name, len(clip.frames), clip.sha256)
    folder = engine_folder() if args.out is None else args.out
    library = load_library()
    progress = BuildProgress(args.quiet or args.json)
    with device_session() as (cuda, facts, stream), closing(progress):
        # Measuring the loss of accuracy needs no GPU, but takes long. So a GPU is searched for first.
        if clip is not None and args.sequences:
            cost = cost_of_int8(bundle, clip, args.sequences, args.quiet or args.json)
            print(cost.text, file=sys.stderr)
            cost.require_small()
        engines = EngineSet(bundle, precision, library, facts, folder, calibration)
        builder = EngineBuilder(engines, cuda, stream, progress.report, progress.step, clip)
        reports = builder.build(force=args.force)
    if args.json:
        print(json.dumps({"bundle": bundle.spec.name, "folder": str(folder), "engines": reports}, indent=1))
    else:
        print_reports(reports)
    return 0


def _calibration_clip(folder: Path | None) -> CalibrationClip:
    """Return `CLIP_FRAMES` frames of the sequence in ``folder``; without a folder, generated pictures.

    Raises InputError if the folder does not contain exactly one sequence.
    """
    from efftam_workshop.export.int8 import CalibrationClip, default_clip

    if folder is None:
        return default_clip()
    sequences = find_sequences(folder)
    if len(sequences) != 1:
        names = ", ".join(sequence.name for sequence in sequences)
        raise InputError(f"--calibration {folder} has {len(sequences)} sequences ({names}); name one of them")
    frames = tuple(frame.bgr.copy() for frame in islice(sequences[0].frames(), CLIP_FRAMES))
    return CalibrationClip(sequences[0].name, frames, Box(*sequences[0].boxes[0]))


def print_reports(reports: dict[str, dict[str, Any]]) -> None:
    rows = [
        [
            name,
            report["form"],
            report["layers"],
            len(report["fused"]),
            " ".join(report["precisions"]),
            f"{max(report['deviations'].values()):.1e}",
            f"{report['seconds']:.1f}",
            _times(report),
        ]
        for name, report in reports.items()
    ]
    columns = ["module", "form", "layers", "fused attention", "tensors", "worst error", "build, s"]
    print_table([*columns, "ms"], rows)
    clip = next(iter(reports.values())).get("clip")
    if clip:
        overlap = f"{clip['mean']:.4f}, worst {clip['worst']:.4f}"
        print(f"mask overlap with the CPU over the chained clip: {overlap}")
    for name, report in reports.items():
        for reason in report["rejected"]:
            print(f"{name}: rejected {reason}", file=sys.stderr)


def _times(report: dict[str, Any]) -> str:
    """Return the time of the stored form in ms, and the other forms' times as multiples of it.

    Returns "-" if nothing was timed.
    """
    times = dict(report["times_ms"])
    kept = times.pop(report["form"], None)
    if kept is None:
        return "-"
    return "; ".join([f"{kept:.3f}", *(f"{form} {ms / kept:.2f}x" for form, ms in times.items())])


class BuildProgress:
    """Shows the progress of an engine build on stderr: lines, and a bar for each phase of the builder.

    Close it when the build ends. Prints nothing if ``quiet``.
    """

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._bar: tqdm | None = None
        self._phase = ""

    def report(self, line: str) -> None:
        if not self._quiet:
            self.close()
            print(line, file=sys.stderr)

    def step(self, phase: str, step: int, steps: int) -> bool:
        """Show that ``step`` of ``steps`` is reached. The builder calls this; True lets it continue."""
        if self._quiet:
            return True
        if phase != self._phase or self._bar is None:
            self.close()
            self._phase, self._bar = phase, progress_bar(steps, phase[:40], unit="step")
        self._bar.update(step - self._bar.n)
        return True

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
        self._bar, self._phase = None, ""
