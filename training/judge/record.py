"""Record every candidate of every window of the tracker, with what it looks like and the truth.

OUT/CLIP.POLICY.npz holds one run. What is recorded is raw, so that features can be computed anew: boxes,
predicted IoUs, presence and vectors of the identity network for all candidates, vectors of some boxes
beside the target, camera motion, and what the tracker made of it. A run that is there is left alone.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.contract import Answers, Look, Pipeline
from efftam_ros.core.geometry import Box, View, iou
from efftam_ros.core.targets import TargetSet
from efftam_ros.core.types import Candidates, Frame, Image, Prompt, Track
from efftam_ros.images.blank import is_blank
from efftam_ros.images.camera_motion import ImageCameraMotion
from efftam_ros.runtime.backends import PipelineConfig
from efftam_ros.runtime.identity import Identity
from efftam_ros.runtime.opening import open_pipeline
from efftam_ros.tools.common.terminal import progress_bar
from training.judge.clips import KINDS, Clip, Shown, find_clips

VARIANTS = {"ships": {}, "no_identity": {"identity": False}}
"""Settings that are recorded: as it ships, and one that claims too much."""
OWN_VIEW = -1  # number of the frame's own view among the windows
LOOK_NS = 200_000_000  # time between two looks beside the target
BESIDE, NEAREST, FARTHEST = 4, 1.2, 4.0  # boxes beside the target, and their distance in its sides
SAME_IOU = 0.7  # of candidates of one window that are described once


class WatchedPipeline:
    """A pipeline whose answers are kept. Everything else is the pipeline's."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self.searched: list[tuple[View, Candidates]] = []
        self.seen: tuple[View, Candidates] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pipeline, name)

    def look(self, image: Image, looks: Sequence[Look]) -> Answers:
        answers = self._pipeline.look(image, looks)
        (asked,) = looks
        found = list(zip(asked.views, answers.candidates(asked.target), strict=True))
        if asked.is_search:
            self.searched = found
        else:
            self.seen = found[-1]
        return answers


@dataclass
class Rows:
    """Columns that grow by rows."""

    columns: dict[str, list[Any]] = field(default_factory=dict)

    def add(self, **values: Any) -> None:
        for name, value in values.items():
            self.columns.setdefault(name, []).append(value)

    def arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        return {f"{prefix}_{name}": np.array(values) for name, values in self.columns.items()}


def record(
    clip: Clip, pipeline: Pipeline, identity: Identity, settings: dict[str, Any]
) -> dict[str, NDArray[Any]]:
    """Run the tracker over a clip; returns the columns of frames, candidates and boxes beside the target."""
    watched, config = WatchedPipeline(pipeline), TrackerConfig(**settings)
    describe = identity.describe if config.identity else None
    targets = TargetSet(watched, config, ImageCameraMotion(False), is_blank, describe)
    frames, candidates, beside = Rows(), Rows(), Rows()
    rng, looked_ns, selected = np.random.default_rng(0), -LOOK_NS, False
    for index, shown in enumerate(clip):
        if not selected and shown.truth is None:
            continue
        image = Image.from_array(np.ascontiguousarray(shown.picture))
        watched.searched, watched.seen = [], None
        prompts = {} if selected else {0: Prompt(box=shown.truth)}
        ((_, track, *_),) = targets.step(Frame(image, shown.stamp_ns), prompts)
        targets.remember()
        _add_frame(frames, index, shown, track)
        row = len(frames.columns["index"]) - 1
        if not selected:
            assert shown.truth is not None
            frames.add(prompt=identity.describe(image, [shown.truth])[0].astype(np.float16))
        selected = True
        windows = list(enumerate(watched.searched))
        if watched.seen is not None:
            windows.append((OWN_VIEW, watched.seen))
        for number, (view, answer) in windows:
            if answer.is_finite:
                about = image, identity, shown.truth
                _add_candidates(candidates, row, number, view, answer, *about)
        if track.measured and track.box is not None and shown.stamp_ns - looked_ns >= LOOK_NS:
            looked_ns = shown.stamp_ns
            boxes = boxes_beside(track.box, (image.width, image.height), rng)
            for box, vector in zip(boxes, identity.describe(image, boxes), strict=True):
                beside.add(frame=row, box=_numbers(box), vector=vector.astype(np.float16))
    return {**frames.arrays("frame"), **candidates.arrays("candidate"), **beside.arrays("beside")}


def boxes_beside(box: Box, image_size: tuple[int, int], rng: np.random.Generator) -> list[Box]:
    """Boxes of the same size beside one, whole in the image, px."""
    found = []
    for angle, away in zip(
        rng.uniform(0, 2 * math.pi, BESIDE), rng.uniform(NEAREST, FARTHEST, BESIDE), strict=True
    ):
        x, y = box.x + math.cos(angle) * away * box.width, box.y + math.sin(angle) * away * box.height
        if x >= 0 and y >= 0 and x + box.width <= image_size[0] and y + box.height <= image_size[1]:
            found.append(Box(x, y, box.width, box.height))
    return found


def _numbers(box: Box | None) -> tuple[float, float, float, float]:
    return (math.nan,) * 4 if box is None else (box.x, box.y, box.width, box.height)


def _add_frame(frames: Rows, index: int, shown: Shown, track: Track) -> None:
    motion, camera = track.motion, None if track.camera is None else track.camera.matrix
    frames.add(
        index=index,
        stamp_ns=shown.stamp_ns,
        size=track.image_size,
        truth=_numbers(shown.truth),
        state=int(track.state),
        measured=track.measured,
        box=_numbers(track.box),
        estimate=_numbers(None if motion is None else motion.box),
        velocity=(math.nan, math.nan) if motion is None else motion.velocity,
        camera=np.full((3, 3), np.nan) if camera is None else camera,
        reason=track.reason,
    )


def _add_candidates(
    candidates: Rows,
    row: int,
    window: int,
    view: View,
    answer: Candidates,
    image: Image,
    identity: Identity,
    truth: Box | None,
) -> None:
    """Add what a window shows; of masks that are nearly the same the better one is described."""
    ranked = sorted(answer.visible, key=lambda one: -float(answer.ious[one[0]]))
    kept: list[tuple[int, Box]] = []
    for number, box in ranked:
        if all(iou(box, other) < SAME_IOU for _, other in kept) or window < 0:
            kept.append((number, box))
    vectors = identity.describe(image, [box for _, box in kept])
    for (number, box), vector in zip(kept, vectors, strict=True):
        candidates.add(
            frame=row,
            window=window,
            view=(view.x, view.y, *view.extent),
            box=_numbers(box),
            area=float(answer.areas[number]),
            quality=float(answer.ious[number]),
            logit=answer.presence_logit,
            overlap=0.0 if truth is None else iou(box, truth),
            vector=vector.astype(np.float16),
        )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", type=Path, metavar="OUT", help="folder of the recordings")
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="folders of sequences")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), metavar="KIND")
    parser.add_argument("--variants", nargs="+", choices=tuple(VARIANTS), default=list(VARIANTS), metavar="V")
    parser.add_argument(
        "--most", type=int, default=150, metavar="N", help="images of each sequence; default %(default)s"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run(args: argparse.Namespace) -> int:
    cv2.setNumThreads(1)
    clips = find_clips(args.folders, tuple(args.kinds), args.most)
    work = [(clip, name) for name in args.variants for clip in clips]
    args.out.mkdir(parents=True, exist_ok=True)
    pipeline, identity = open_pipeline(PipelineConfig(threads=1, max_targets=1)), Identity()
    try:
        with progress_bar(len(work), "recording", unit="clip", quiet=args.quiet) as bar:
            for clip, name in work:
                target = args.out / f"{clip.group}.{clip.name}.{name}.npz"
                if not target.exists():
                    begin = time.monotonic()
                    columns = record(clip, pipeline, identity, VARIANTS[name])
                    _write(target, clip, columns)
                    if args.quiet:
                        print(
                            f"{target.stem}: {len(clip)} images, {time.monotonic() - begin:.0f} s", flush=True
                        )
                bar.update()
    finally:
        pipeline.close()
    return 0


def _write(target: Path, clip: Clip, columns: dict[str, NDArray[Any]]) -> None:
    part = target.with_suffix(".part")
    with part.open("wb") as file:
        about: dict[str, Any] = {
            name: np.array(getattr(clip, name)) for name in ("name", "group", "kind", "half", "event")
        }
        np.savez_compressed(file, **about, **columns)  # type: ignore[arg-type]  # of keywords, all are arrays
    part.rename(target)
