"""Opens two trackers of other projects, FEAR-XS and NanoTrack V3, whose boxes are compared."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from benchmarks.peers import open_fear, open_nanotrack
from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from training.labelling.segmenter import Frame


class Follower(Protocol):
    """A tracker. ``score``: its confidence in its last box, 0..1; always 1 if it reports none."""

    score: float

    def start(self, bgr: Frame, box: Box) -> None: ...
    def update(self, bgr: Frame) -> Box: ...


def open_followers(folder: Path) -> tuple[Follower, Follower]:
    """Open both trackers with one thread each. Raises InputError if their files are missing or invalid."""
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; --peers names that of the trackers' ONNX files")
    return open_fear("fear_xs", folder, 1), open_nanotrack("nanotrack_v3", folder, 1)
