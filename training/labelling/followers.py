"""Two trackers of other projects, which must agree on where an object goes: FEAR-XS and NanoTrack V3."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from benchmarks.peers import open_fear, open_nanotrack
from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from training.labelling.segmenter import Frame


class Follower(Protocol):
    """A tracker. ``score``: how sure it was of its last box, 0..1; 1 if it can't say."""

    score: float

    def start(self, bgr: Frame, box: Box) -> None: ...
    def update(self, bgr: Frame) -> Box: ...


def open_followers(folder: Path) -> tuple[Follower, Follower]:
    """The two trackers, one thread each. Raises InputError: files missing or not as expected."""
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; --peers names that of the trackers' ONNX files")
    return open_fear("fear_xs", folder, 1), open_nanotrack("nanotrack_v3", folder, 1)
