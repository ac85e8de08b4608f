"""Images with true boxes: those of the clip that ships, at any size, also as a sequence in a folder."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.geometry import Box
from efftam_ros.images.source import NS
from efftam_ros.tools.common.video import VideoWriter
from efftam_ros.tools.demo import CLIP
from efftam_workshop.eval.sequences import read_own


class Shown(NamedTuple):
    """``bgr`` uint8 [H, W, 3]; ``box`` of what is visible of the target, px, None while it is hidden."""

    bgr: NDArray[np.uint8]
    box: Box | None


def clip(frames: int | None = None, size: tuple[int, int] = (640, 360)) -> list[Shown]:
    """The first ``frames`` images (None: all 345) at a size, width and height in px."""
    sequence = read_own(CLIP)
    width, height = size
    shown = []
    for frame, row in zip(islice(sequence.frames(), frames), sequence.boxes, strict=False):
        scale = np.array([width, height] * 2) / ([frame.bgr.shape[1], frame.bgr.shape[0]] * 2)
        x, y, w, h = row * scale
        bgr = cv2.resize(frame.bgr, size, interpolation=cv2.INTER_LINEAR)
        shown.append(Shown(np.asarray(bgr, np.uint8), Box(x, y, w, h) if np.isfinite(w) else None))
    return shown


def widened(shown: Iterable[Shown], mirrored: bool = False) -> list[Shown]:
    """The same images in the middle of larger ones, 1024x576 px, which repeat what is at their edges."""
    size, wide = (1024, 576), []
    for bgr, box in shown:
        height, width = bgr.shape[:2]
        right, below = (size[0] - width) // 2, (size[1] - height) // 2
        image = cv2.copyMakeBorder(bgr, below, below, right, right, cv2.BORDER_REFLECT_101)
        if box is not None:
            x = size[0] - box.x - right - box.width if mirrored else box.x + right
            box = Box(x, box.y + below, box.width, box.height)
        wide.append(Shown(np.asarray(cv2.flip(image, 1) if mirrored else image, np.uint8), box))
    return wide


def write_sequence(folder: Path, shown: Iterable[Shown], fps: float = 30.0) -> Path:
    """Write images as a sequence in the package's format; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    shown = list(shown)
    height, width = shown[0].bgr.shape[:2]
    rows = ["frame,x,y,w,h"]
    with VideoWriter(folder / "video.mp4", width, height, fps) as writer:
        for index, (bgr, box) in enumerate(shown):
            writer.write(bgr, round(index * NS / fps))
            rows.append(",".join(map(str, (index, *(box.xywh() if box else ["nan"] * 4)))))
    (folder / "boxes.csv").write_text("\n".join(rows) + "\n")
    return folder
