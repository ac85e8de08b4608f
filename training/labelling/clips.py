"""A labelled clip on disk, in the format of sequences_train: video.mp4, masks.npz, boxes.csv, meta.json."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.tools.common.video import NS, VideoWriter
from efftam_workshop.eval.sequences import mask_box
from training.labelling.scenes import FPS
from training.labelling.segmenter import Frame
from training.labelling.tracks import EVERY, Track
from training.material import FOOTAGE_WIDTH

MIN_AREA = 40  # smallest area of a mask in the clip, px
CRF = 24
RATE = FPS / EVERY  # nominal frames per second: frames whose mask did not fit are missing
MADE_BY = "python -m training label (FEAR-XS, NanoTrack V3, MobileSAM), not by hand"


def clip_size(width: int, height: int) -> tuple[int, int]:
    """Return width and height, px, of the clip for frames of this size; both are even for the video."""
    scale = min(1.0, FOOTAGE_WIDTH / width)
    return int(width * scale) // 2 * 2, int(height * scale) // 2 * 2


def shrunk_tracks(
    where: Sequence[int], tracks: Sequence[Track], size: tuple[int, int]
) -> tuple[NDArray[np.bool_], list[dict[str, Any]]]:
    """Return the masks, bool [tracks, frames, H, W], and the figures of tracks that are large enough.

    A track must have `MIN_AREA` in each of the frames ``where``.
    """
    kept, figures = [], []
    for track in tracks:
        masks = [resized(track.masks[i].astype(np.uint8) * np.uint8(255), size) > 127 for i in where]
        if min(int(mask.sum()) for mask in masks) >= MIN_AREA:
            kept.append(np.stack(masks))
            figures.append(track.figures)
    shape = (0, len(where), size[1], size[0])
    return (np.stack(kept) if kept else np.zeros(shape, bool)), figures


def describe(
    name: str,
    source: dict[str, str],
    numbers: Sequence[int],
    masks: NDArray[np.bool_],
    figures: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    """Return the content of meta.json: origin of the frames, sizes of the targets, figures of the checks."""
    tracks, frames, height, width = masks.shape
    sizes = [float(np.sqrt(mask.sum())) for track in masks for mask in track]
    return {
        "name": name,
        "data_set": "pseudo",
        **source,
        "frames_in_source": [int(n) for n in numbers],
        "frames": frames,
        "width": width,
        "height": height,
        "targets": tracks,
        "target": {
            "sqrt_area_px": {"min": min(sizes), "median": float(np.median(sizes)), "max": max(sizes)},
            "frames_absent": 0,
        },
        "ground_truth": MADE_BY,
        "encoding": f"H.264 CRF {CRF} yuv420p",
        "has_masks": True,
        "figures": [
            {key: round(value, 3) if isinstance(value, float) else value for key, value in one.items()}
            for one in figures
        ],
    }


def write_clip(
    folder: Path,
    pairs: Iterable[tuple[Frame, NDArray[np.bool_]]],
    meta: dict[str, Any],
    fps: float = RATE,
    crf: int = CRF,
) -> None:
    """Write a clip. Its folder gets its name only when it is complete.

    ``pairs``: each frame, of any size, with its masks bool [tracks, H, W] in the size that ``meta`` states.
    """
    size = meta["width"], meta["height"]
    folder.parent.mkdir(parents=True, exist_ok=True)
    bits: list[NDArray[np.uint8]] = []
    boxes: list[list[str]] = []
    with tempfile.TemporaryDirectory(prefix=".clip_", dir=folder.parent) as place:
        part = Path(place) / folder.name
        part.mkdir()
        with VideoWriter(part / "video.mp4", *size, fps, crf=crf) as writer:
            for index, (frame, masks) in enumerate(pairs):
                writer.write(resized(frame, size), round(index * NS / fps))
                bits.append(np.packbits(masks.reshape(len(masks), -1), axis=1))
                boxes.append([",".join([str(index), *(f"{v:g}" for v in mask_box(one))]) for one in masks])
        stored = {}
        for number, (packed, rows) in enumerate(
            zip(np.stack(bits, 1), zip(*boxes, strict=True), strict=True)
        ):
            ending = f"_{number + 1}" if number else ""
            stored[f"bits{ending}"] = packed
            (part / f"boxes{ending}.csv").write_text("\n".join(["frame,x,y,w,h", *rows, ""]))
        shape = np.array([len(bits), size[1], size[0]])
        np.savez_compressed(part / "masks.npz", shape=shape, **stored)
        (part / "meta.json").write_text(json.dumps(meta, indent=1) + "\n")
        part.rename(folder)


def read_masks(folder: Path) -> NDArray[np.bool_]:
    """Read the masks of a clip, bool [tracks, frames, H, W]."""
    with np.load(folder / "masks.npz") as stored:
        frames, height, width = (int(n) for n in stored["shape"])
        tracks = [
            np.unpackbits(stored[key].reshape(frames, -1), axis=1, count=height * width)
            for key in stored.files
            if key.startswith("bits")
        ]
    return np.stack(tracks).reshape(len(tracks), frames, height, width).astype(bool)


def resized(image: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """Return the image resized to ``size`` (width, height) px; the same object if it has this size."""
    if image.shape[1::-1] == size:
        return image
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), np.uint8)
