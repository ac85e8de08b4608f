"""Evaluate the tracker on sequences with ground truth.

Folders: a sequence, the root of a data set or a folder of sequences, in the package's format (video.mp4,
boxes.csv, for further targets boxes_2.csv, ..., and masks.npz), or as DAVIS and OTB are published. The
tracker is started once, with the first true box. Frame 0 and frames without ground truth are not scored. A
frame without a result has overlap 0.

columns, each 0..1: AO: mean overlap (IoU). +-: its standard deviation over --repeats. AUC: area under the
success plot. SR50: share of frames with an overlap above 0.5. P@20px: share of frames whose box has a centre
at most 20 px off. norm P: the same, with the distance in units of the target's size; mean over thresholds
from 0 to 0.5. J: mean overlap of masks. false claims: share of frames whose box is reported as measured
although it misses the target (overlap below 0.1) or the target is absent. id switches, in videos with several
targets: how often the measured box on an object (overlap from 0.5) changed from one target to another. on
another: number of targets that ended on another target's object.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
import zlib
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.config import POLICIES, VIEWS, TrackerConfig
from efftam_ros.core.contract import Pipeline
from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_ros.core.types import Frame, Image, Prompt, Track
from efftam_ros.images.source import VideoFrame
from efftam_ros.runtime.opening import open_pipeline, open_targets
from efftam_ros.tools.common.following import follow
from efftam_ros.tools.common.options import (
    add_backend_arguments,
    add_quiet_argument,
    add_settings_argument,
    list_of,
    pipeline_config,
    tracker_config,
)
from efftam_ros.tools.common.outputs import Output, check_outputs, replacing, write_text
from efftam_ros.tools.common.recordings import (
    ViewerRecording,
    add_rerun_argument,
    open_recording,
    rerun_output,
)
from efftam_ros.tools.common.terminal import Cell, print_table, progress_bar
from efftam_workshop.eval.metrics import (
    SUCCESS_THRESHOLDS,
    Identities,
    Scores,
    identities,
    known_rows,
    mask_overlap,
    mean_scores,
    overlaps,
    score,
    success_curve,
)
from efftam_workshop.eval.sequences import Sequence, find_sequences, folders_read

COLUMNS = {
    "ao": "AO",
    "auc": "AUC",
    "sr50": "SR50",
    "precision": "P@20px",
    "norm_precision": "norm P",
    "j": "J",
    "false_claims": "false claims",
}
JITTER_PX = 1.0
NEEDS = ("tqdm",)

Pixels = NDArray[np.uint8]


def add_arguments(parser: argparse.ArgumentParser, folders: str = "+") -> None:
    """Add the command's arguments. ``folders``: allowed number of FOLDERs, as argparse's ``nargs``."""
    parser.add_argument(
        "folders",
        nargs=folders,
        type=Path,
        metavar="FOLDER",
        help="sequence, data set or folder of sequences",
    )
    ours = parser.add_argument_group("trackers (every combination is run)")
    ours.add_argument(
        "--bundle",
        action="append",
        type=Path,
        metavar="DIR",
        help="folder of a network; repeatable (default: the shipped one)",
    )
    ours.add_argument(
        "--policy", type=list_of(POLICIES), default=["default"], metavar="A,B", help=", ".join(POLICIES)
    )
    ours.add_argument("--view", type=list_of(VIEWS), default=["bundle"], metavar="A,B", help=", ".join(VIEWS))
    add_backend_arguments(ours)
    add_settings_argument(ours)
    output = parser.add_argument_group("scoring and output")
    output.add_argument(
        "--repeats",
        type=int,
        default=1,
        metavar="N",
        help="runs per sequence; from the second on the first box is jittered by up to one px",
    )
    output.add_argument(
        "--together", action="store_true", help="follow all targets of a video at once (default: one by one)"
    )
    output.add_argument("--plot", type=Path, metavar="FILE.png", help="write the success plot")
    output.add_argument("--json", type=Path, metavar="FILE", help="write all scores")
    add_rerun_argument(output)
    add_quiet_argument(output)


def run(args: argparse.Namespace) -> int:
    return evaluate(args, own_entries(args))


def evaluate(args: argparse.Namespace, entries: Entries) -> int:
    """Run every tracker over every sequence, and print and write the scores as the arguments require.

    Returns the exit code 0. Raises InputError for invalid arguments, sequences or output paths.
    """
    if args.repeats < 1:
        raise InputError(f"--repeats is {args.repeats}; it must be at least 1")
    sequences = [sequence for folder in args.folders for sequence in find_sequences(folder)]
    check_outputs(
        [Output("--json", args.json), Output("--plot", args.plot, "picture"), rerun_output(args.rerun)],
        [inner for folder in args.folders for inner in folders_read(folder)],
    )
    names = [sequence.name for sequence in sequences]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"two sequences are called {name}; evaluate them in separate runs")
    at_once = groups(sequences, args.together)
    results = [Passes(name) for name in entries]
    total = sum(len(sequence) for sequence in sequences) * args.repeats * len(entries)
    with (
        progress_bar(total, "eval", quiet=args.quiet) as bar,
        open_recording(args.rerun, "eval") as recording,
    ):
        for result in results:
            with closing(entries[result.name](max(map(len, at_once)))) as tracker:
                for group, repeat in itertools.product(at_once, range(args.repeats)):
                    bar.set_description(f"{result.name}: {group[0].name}")
                    recorder = _recorder(recording, result.name, group) if repeat == 0 else None
                    passes = one_pass(tracker, group, repeat, bar.update, recorder)
                    for sequence, one in zip(group, passes, strict=True):
                        result.add(sequence, one)
    first, *more = COLUMNS.values()
    headers = [first, *(["+-"] if args.repeats > 1 else []), *more]
    for result in results:
        print_table(["sequence", "frames", *headers], result.rows(), title=f"\n{result.name}")
        if result.identities:
            rows: list[list[Cell]] = [[video, *found] for video, found in result.identities.items()]
            print_table(["video", "targets", "id switches", "on another"], rows, title="")
    if len(results) > 1:
        title = f"\nmean over {len(sequences)} sequences, {args.repeats} run{'s'[: args.repeats > 1]} each"
        rows = [[r.name, *score_cells(r.mean, r.repeats), f"{r.ms_per_frame:.1f}"] for r in results]
        print_table(["tracker", *headers, "ms/frame"], rows, title=title)
    try:
        if args.json is not None:
            text = json.dumps(
                {"repeats": args.repeats, "runs": [result.record() for result in results]}, indent=1
            )
            write_text(args.json, text + "\n")
    finally:  # the plot is written even if --json fails, because it may be on another disk
        if args.plot is not None:
            _plot(args.plot, results, len(sequences))
    return 0


class FrameResult(NamedTuple):
    """A tracker's result for one frame.

    ``box``: in px, None without a result. ``measured``: whether the box was found in this frame. ``mask``:
    bool [H, W]. ``track``: only from this package's tracker.
    """

    box: Box | None
    measured: bool
    mask: NDArray[np.bool_] | None = None
    track: Track | None = None


Recorder = Callable[[VideoFrame, FrameResult], None]


class EvaluatedTracker(Protocol):
    """A tracker under evaluation. ``has_masks``: whether it computes masks when called with ``want_mask``."""

    has_masks: bool

    def answers(
        self, bgr: Pixels, stamp_ns: int, firsts: list[Box] | None, want_mask: bool
    ) -> list[FrameResult]:
        """Return the results of all targets for the frame ``bgr``, uint8 [H, W, 3].

        ``firsts``: with the first frame, the targets' boxes to start from; with later frames None.
        """
        ...

    def close(self) -> None: ...


Group = list[Sequence]
"""Sequences of one video, whose targets are followed at the same time."""
Entries = dict[str, Callable[[int], EvaluatedTracker]]
"""Trackers to evaluate: by name, a function that opens the tracker for a number of targets at once."""


@dataclass(frozen=True)
class Pass:
    """Results of one run over one sequence.

    ``curve``: success curve [21]. ``seconds_per_frame``: mean time per frame, s. ``measured``: boxes [N, 4]
    that were reported as measured, other rows NaN.
    """

    scores: Scores
    curve: NDArray[np.float64]
    seconds_per_frame: float
    measured: NDArray[np.float64]


def one_pass(
    tracker: EvaluatedTracker,
    group: Group,
    repeat: int,
    progress: Callable[[], object],
    recorder: Recorder | None = None,
) -> list[Pass]:
    """Run a tracker over one video, started with the first box of each sequence of ``group``.

    Returns one `Pass` per sequence. ``repeat`` above 0 jitters the first boxes, equally for every tracker.
    ``progress`` is called after each frame of each sequence. ``recorder`` is called with every frame and the
    first target's result.
    """
    size = len(group), len(group[0])
    predicted = np.full((*size, 4), np.nan)
    claimed: NDArray[np.bool_] = np.zeros(size, bool)
    overlap_of_masks: list[list[float]] = [[] for _ in group]
    spent = 0.0
    wants_mask = tracker.has_masks and any(sequence.mask for sequence in group)
    firsts: list[Box] | None = [jittered(Box(*one.boxes[0]), one.name, repeat) for one in group]
    for frame in group[0].frames():
        if frame.index >= len(group[0]):
            break  # the video has more frames than boxes
        if firsts is not None and frame.index:
            raise InputError(
                f"{group[0].name}: its first image, in which the target is marked, is damaged; replace it"
            )
        began = time.perf_counter()
        answers = tracker.answers(frame.bgr, frame.stamp_ns, firsts, wants_mask)
        spent += time.perf_counter() - began
        firsts = None
        if recorder is not None:
            recorder(frame, answers[0])
        for target, (sequence, (box, claim, mask, _)) in enumerate(zip(group, answers, strict=True)):
            if box is not None and box.is_finite:
                predicted[target, frame.index], claimed[target, frame.index] = box.xywh(), claim
            if sequence.mask is not None and wants_mask and frame.index > 0:
                truth = sequence.mask(frame.index)
                if truth.any():
                    found = np.zeros_like(truth) if mask is None else mask
                    overlap_of_masks[target].append(mask_overlap(truth, found))
            progress()
    passes = []
    for sequence, boxes, claims, j in zip(group, predicted, claimed, overlap_of_masks, strict=True):
        scored = known_rows(sequence.boxes)
        scored[0] = False
        scores = score(sequence.boxes, boxes, claims, float(np.mean(j)) if j else math.nan)
        curve = success_curve(overlaps(sequence.boxes, boxes)[scored])
        measured = np.where(claims[:, None], boxes, np.nan)
        passes.append(Pass(scores, curve, spent / len(sequence) / len(group), measured))
    return passes


def groups(sequences: Group, together: bool) -> list[list[Sequence]]:
    """Return groups of sequences that are run at once: those of one video if ``together``, else each alone.

    Raises InputError if the sequences of one video differ in length.
    """
    by_video: dict[str, list[Sequence]] = {}
    for one in sequences:
        by_video.setdefault(one.video, []).append(one)
        if len(one) != len(by_video[one.video][0]):
            raise InputError(
                f"the targets of {one.video} have {len(one)} and {len(by_video[one.video][0])} boxes; give"
                " each target the same number"
            )
    return list(by_video.values()) if together else [[one] for one in sequences]


def _recorder(recording: ViewerRecording | None, entry: str, group: Group) -> Recorder | None:
    if recording is None:
        return None

    def record(frame: VideoFrame, answer: FrameResult) -> None:
        if answer.track is not None:
            part, truth = f"{entry} {group[0].name}", group[0].boxes[frame.index].tolist()
            recording.write(frame.bgr, {0: (answer.track, None)}, part=part, truth=truth)

    return record


def jittered(box: Box, name: str, repeat: int) -> Box:
    """Return the box with each edge moved at random by up to one px; unchanged for repeat 0.

    The movement depends only on ``name`` and ``repeat``. No side shrinks by more than half.
    """
    if repeat == 0:
        return box
    rng = np.random.default_rng([repeat, zlib.crc32(name.encode())])
    shift = rng.uniform(-JITTER_PX, JITTER_PX, 4)
    most = np.array([box.width, box.height, box.width, box.height]) / 4
    return Box.from_edges(*(np.array(box.edges()) + np.clip(shift, -most, most)))


@dataclass
class Passes:
    """All runs over the sequences with one tracker configuration."""

    name: str
    passes: dict[str, list[Pass]] = field(default_factory=dict)
    sequences: dict[str, Sequence] = field(default_factory=dict)

    def add(self, sequence: Sequence, one: Pass) -> None:
        self.sequences[sequence.name] = sequence
        self.passes.setdefault(sequence.name, []).append(one)

    @property
    def identities(self) -> dict[str, Identities]:
        """Confusions of targets by video, for videos with several targets; summed over the repeats."""
        found = {}
        for group in groups(list(self.sequences.values()), together=True):
            if len(group) > 1:
                truths = np.stack([one.boxes for one in group])
                runs = zip(*(self.passes[one.name] for one in group), strict=True)
                kept = [identities(truths, np.stack([one.measured for one in run])) for run in runs]
                found[group[0].video] = Identities(*(sum(column) for column in zip(*kept, strict=True)))
        return found

    def of(self, name: str) -> Scores:
        """Return the mean scores over the repeats of the sequence ``name``."""
        scores = [one.scores for one in self.passes[name]]
        return replace(mean_scores(scores), frames=scores[0].frames)

    @property
    def repeats(self) -> list[Scores]:
        """Mean scores over the sequences, one for each repeat."""
        return [
            mean_scores(one.scores for one in column) for column in zip(*self.passes.values(), strict=True)
        ]

    @property
    def mean(self) -> Scores:
        return replace(mean_scores(self.repeats), frames=self.repeats[0].frames)

    @property
    def curve(self) -> NDArray[np.float64]:
        """Mean success curve [21] over sequences and repeats."""
        return np.asarray(np.mean([one.curve for one in self._all], axis=0), np.float64)

    @property
    def _all(self) -> list[Pass]:
        return [one for passes in self.passes.values() for one in passes]

    @property
    def ms_per_frame(self) -> float:
        return 1e3 * float(np.mean([one.seconds_per_frame for one in self._all]))

    def rows(self) -> list[list[Cell]]:
        """Return the table's rows: one per sequence, then their mean if there are several."""
        rows = [
            [name, self.of(name).frames, *score_cells(self.of(name), [one.scores for one in passes])]
            for name, passes in self.passes.items()
        ]
        mean: list[Cell] = ["mean", self.mean.frames, *score_cells(self.mean, self.repeats)]
        return [*rows, mean] if len(rows) > 1 else rows

    def record(self) -> dict[str, Any]:
        """Return the scores as --json writes them; unknown numbers are None."""
        return {
            "name": self.name,
            "ms_per_frame": self.ms_per_frame,
            "mean": _known(asdict(self.mean)),
            "spread": _known(spread(self.repeats)),
            "identities": {video: found._asdict() for video, found in self.identities.items()},
            "success_thresholds": SUCCESS_THRESHOLDS.tolist(),
            "success": self.curve.tolist(),
            "sequences": {
                name: _known(asdict(self.of(name)))
                | {"spread": _known(spread([one.scores for one in passes]))}
                for name, passes in self.passes.items()
            },
        }


def spread(scores: list[Scores]) -> dict[str, float]:
    """Return the standard deviation of each score over repeats; NaN for a single repeat."""
    names = [f.name for f in fields(Scores) if f.name != "frames"]
    if len(scores) < 2:
        return dict.fromkeys(names, math.nan)
    return {name: float(np.std([getattr(s, name) for s in scores], ddof=1)) for name in names}


def score_cells(scores: Scores, repeats: list[Scores]) -> list[Cell]:
    first, *more = [getattr(scores, name) for name in COLUMNS]
    return [first, *([spread(repeats)["ao"]] if len(repeats) > 1 else []), *more]


def own_entries(args: argparse.Namespace) -> Entries:
    """Return this package's tracker with every combination of the given bundles, policies and views."""
    found: Entries = {}
    bundles = args.bundle or [None]
    for bundle, policy, view in itertools.product(bundles, args.policy, args.view):
        config = tracker_config(args.settings, policy=policy, view=view)
        name = [str(bundle)] if len(bundles) > 1 else []
        name += [policy, *([view] if view != "bundle" or len(args.view) > 1 else [])]
        found[" ".join(name)] = partial(_opened, bundle, args, config)
    return found


class OwnTracker:
    """This package's tracker as an `EvaluatedTracker`. Closing it closes its pipeline."""

    def __init__(self, pipeline: Pipeline, config: TrackerConfig, has_masks: bool = True) -> None:
        self._targets, self.close = open_targets(pipeline, config), pipeline.close
        self.has_masks = has_masks

    def answers(
        self, bgr: Pixels, stamp_ns: int, firsts: list[Box] | None, want_mask: bool
    ) -> list[FrameResult]:
        if firsts is not None:
            self._targets.clear()
        prompts = {number: Prompt(box=box) for number, box in enumerate(firsts or ())}
        found, _ = follow(self._targets, Frame(Image.from_array(bgr), stamp_ns), prompts, want_mask)
        self._targets.remember()
        return [
            FrameResult(track.box, track.measured, None if mask is None else mask > 0, track)
            for _, (track, mask) in sorted(found.items())
        ]


def _opened(
    bundle: Path | None, args: argparse.Namespace, config: TrackerConfig, max_targets: int
) -> EvaluatedTracker:
    return OwnTracker(open_pipeline(pipeline_config(args, max_targets, bundle=bundle)), config)


def _plot(path: Path, results: list[Passes], sequences: int) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 4.8), layout="constrained")
    for result in sorted(results, key=lambda r: -r.curve.mean()):
        axes.plot(SUCCESS_THRESHOLDS, result.curve, label=f"{result.name} [{result.curve.mean():.3f}]")
    axes.set(xlabel="overlap threshold", ylabel="share of frames above", xlim=(0, 1), ylim=(0, 1))
    axes.set_title(f"Success on {sequences} sequence{'s'[: sequences > 1]} [AUC]")
    axes.legend()
    axes.grid(alpha=0.3)
    with replacing(path) as part:
        figure.savefig(part, dpi=120)
    pyplot.close(figure)


def _known(values: dict[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in values.items()}
