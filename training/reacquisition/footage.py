"""Real clips with known boxes, and their assignment to the two halves of the evaluation."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_ros.images.video import open_video
from efftam_workshop.eval.sequences import read_own

HALVES = ("choosing", "reporting")
SLOWEST_FPS = 10.0  # slower clips are played at this rate, so their targets are faster than in reality
THINNED_FPS = 20.0  # of clips with at least this rate only every second frame is used
MIN_FRAMES = 12


@dataclass(frozen=True)
class Footage:
    """A clip of one target.

    ``boxes``: float64 [N, 4] x, y, w, h in px, NaN where the target is absent. ``step``: every step-th frame
    is used. ``fps``: rate of the used frames.
    """

    name: str
    video: Path
    width: int
    height: int
    fps: float
    step: int
    boxes: NDArray[np.float64]

    @property
    def scene(self) -> str:
        return scene_of(self.name)

    @property
    def half(self) -> str:
        return half_of(self.scene)

    def __len__(self) -> int:
        return len(self.boxes)

    def box(self, index: int) -> Box | None:
        """Return the target's box in used frame ``index``; None if it is absent."""
        box = Box(*map(float, self.boxes[index]))
        return None if box.is_empty else box

    def pictures(self, indices: Iterable[int]) -> dict[int, NDArray[np.uint8]]:
        """Return the BGR images uint8 [H, W, 3] of the used frames with these indices, by index."""
        wanted = {index * self.step for index in indices}
        last = max(wanted)
        found: dict[int, NDArray[np.uint8]] = {}
        for frame in open_video(self.video).frames():
            if frame.index in wanted:
                found[frame.index // self.step] = frame.bgr
            if frame.index >= last:
                break
        return found


def scene_of(name: str) -> str:
    """Return the scene of a clip: ``scene_2`` and ``scene_3`` show ``scene``, with one background."""
    return re.sub(r"_\d+$", "", name)


def half_of(scene: str) -> str:
    """Return the half to which a scene belongs, by a hash of its name, so that the choice is not biased."""
    return HALVES[hashlib.sha256(scene.encode()).digest()[0] % 2]


def find_footage(folders: Sequence[Path]) -> list[Footage]:
    """Return every clip below these folders (``video.mp4`` with ``boxes.csv``), ordered by name.

    Clips with fewer than `MIN_FRAMES` or without a first box are left out. Raises InputError if there is no
    clip, or if two have the same name.
    """
    found: dict[str, Footage] = {}
    for folder in folders:
        for truth in sorted(folder.glob("**/boxes.csv")):
            one = _read(truth.parent)
            if one.name in found:
                raise InputError(f"two clips are called {one.name}; give one of their folders")
            if len(one) >= MIN_FRAMES and one.box(0) is not None:
                found[one.name] = one
    if not found:
        raise InputError(
            f"no clip below {', '.join(map(str, folders))}; give folders of clips: video.mp4 and boxes.csv"
        )
    return [found[name] for name in sorted(found)]


def _read(folder: Path) -> Footage:
    video = open_video(folder / "video.mp4")
    step = 2 if video.fps >= THINNED_FPS else 1
    fps = max(video.fps / step, SLOWEST_FPS)
    boxes = read_own(folder).boxes[::step]
    return Footage(folder.name, folder / "video.mp4", video.width, video.height, fps, step, boxes)
