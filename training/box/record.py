"""Follow annotated targets and store what the mask decoder returns in each image, together with the true box.

Every target of the folders is followed from its first true box until it is lost. Each target gets a file
TARGET.npz in OUT. Existing files are kept, so that the same command continues an interrupted run. `fit` reads
the files.

Arrays of a file, N images (index 0 is the image in which the target was selected):

profiles    float16 [N, 4, 2, L]: for each mask of the decoder the maximum logit of each column and each row
ious        float32 [N, 4], areas float32 [N, 4] network px^2, presence float32 [N] logit
pointers    float16 [N, 4, C]
row         int8 [N]: index of the mask that is followed; -1 if no box was accepted
view        float64 [N, 4]: origin of the view, image px, and network px per image px across and down
truth       float64 [N, 4]: true box x, y, w, h, image px; NaN where the target is absent
published   float64 [N, 4]: the tracker's box, image px; NaN where it has none
followed    float64 [N, 4]: the box of the mask that is followed, image px; NaN where no box was accepted
stamp_ns    int64 [N]
image_size  int32 [2]: width, height
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.geometry import Box
from efftam_ros.core.types import Candidates, Frame, Image, Prompt, TrackState
from efftam_ros.runtime.bundle import Bundle, default_bundle
from efftam_ros.runtime.frame_state import Decoded, TargetFrame
from efftam_ros.runtime.onnxruntime.cpu import OrtPipeline
from efftam_ros.runtime.opening import open_targets
from efftam_ros.tools.common.following import follow
from efftam_ros.tools.common.terminal import progress_bar
from efftam_workshop.eval.sequences import Sequence, find_sequences

MAX_IMAGES, MAX_STEP = 24, 4
NOTHING = (math.nan,) * 4


class RecordingPipeline(OrtPipeline):
    """The pipeline on the CPU; it keeps the results of its last decoding in ``boxes`` and ``last``."""

    def _decode(self, frame: TargetFrame) -> Decoded:
        decoded = super()._decode(frame)
        answers = self._targets[frame.target].answers
        logits = answers["masks"].array[0]
        self.boxes = decoded.boxes.copy()
        self.last: dict[str, NDArray[Any]] = {
            "profiles": np.stack([logits.max(axis=1), logits.max(axis=2)], axis=1).astype(np.float16),
            "ious": decoded.ious.copy(),
            "areas": decoded.areas.copy(),
            "presence": np.asarray(decoded.presence, np.float32),
            "pointers": answers["pointers"].array.astype(np.float16),
        }
        return decoded


def record(
    sequence: Sequence, pipeline: RecordingPipeline, images: int, step: int
) -> dict[str, NDArray[Any]]:
    """Follow one target and return the arrays of its file.

    At most ``images`` images are used, every ``step``-th of the video.
    """
    # Camera motion and identity take time and are not needed while a target is not lost.
    targets = open_targets(pipeline, TrackerConfig(camera_motion="off", identity=False))
    rows: list[dict[str, Any]] = []
    row = 0  # index of the single-mask output, which the prompted image uses

    for frame in _frames(sequence, images, step):
        truth = sequence.boxes[frame.index]
        image = Image.from_array(frame.bgr)
        prompts = {} if rows else {0: Prompt(box=Box(*truth))}
        if rows:
            row = -1
        answers, _ = follow(targets, Frame(image, frame.stamp_ns), prompts)
        track, _ = answers[0]
        if not rows:
            policy = targets.tracker(0)._policy

            def noted(candidates: Candidates, context: Any, choose: Any = policy.choose) -> Any:
                nonlocal row
                choice = choose(candidates, context)
                row = -1 if choice.box is None else choice.index + 1
                return choice

            policy.choose = noted  # type: ignore[method-assign]
        if track.state is TrackState.LOST or track.view is None:
            break
        followed = NOTHING
        if row >= 0:
            followed = track.view.to_image(Box.from_edges(*pipeline.boxes[row].tolist())).xywh()
        view = track.view
        rows.append(
            {
                **pipeline.last,
                "row": np.int8(row),
                "view": np.array([view.x, view.y, view.scale_x, view.scale_y]),
                "truth": truth,
                "published": np.array(NOTHING if track.box is None else track.box.xywh()),
                "followed": np.array(followed),
                "stamp_ns": np.int64(frame.stamp_ns),
            }
        )
        size = np.array([image.width, image.height], np.int32)
        targets.remember()
    return {name: np.stack([one[name] for one in rows]) for name in rows[0]} | {"image_size": size}


def _frames(sequence: Sequence, images: int, step: int) -> Iterator[Any]:
    count = 0
    for frame in sequence.frames():
        if frame.index % step == 0 and count < images:
            yield frame
            count += 1
        if count == images:
            return


def step_of(length: int, images: int) -> int:
    """Return the step between used images: about ``images`` of them cover a video of ``length`` images."""
    return max(1, min(MAX_STEP, math.ceil(length / images)))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", type=Path, metavar="OUT", help="folder for the files")
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help="as efftam eval reads them")
    parser.add_argument("--bundle", type=Path, metavar="DIR", help="network; default: the one that ships")
    parser.add_argument(
        "--images",
        type=int,
        default=MAX_IMAGES,
        metavar="N",
        help="largest number of images of a target; default %(default)s",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run(args: argparse.Namespace) -> int:
    bundle = default_bundle() if args.bundle is None else Bundle.load(args.bundle)
    sequences = [sequence for folder in args.folders for sequence in find_sequences(folder)]
    args.out.mkdir(parents=True, exist_ok=True)
    with (
        closing(RecordingPipeline(bundle, threads=1)) as pipeline,
        progress_bar(len(sequences), "recording", unit="target", quiet=args.quiet) as bar,
    ):
        for sequence in sequences:
            path = args.out / f"{sequence.name}.npz"
            if not path.is_file():
                step = step_of(len(sequence), args.images)
                arrays = record(sequence, pipeline, args.images, step)
                part = path.with_suffix(".part")
                with part.open("wb") as file:
                    np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
                part.replace(path)
            bar.update(1)
    print(f"{args.out}: {len(list(args.out.glob('*.npz')))} targets")
    return 0
