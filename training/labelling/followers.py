"""Two trackers of other projects, which must agree on where an object goes: FEAR-XS and NanoTrack V3."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np

from benchmarks.peers import SEARCH_PX, Fear, Floats, PeerModel, find_files, open_nanotrack
from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from training.labelling.segmenter import Frame

FEAR, NANOTRACK = "fear_xs", "nanotrack_v3"


class Follower(Protocol):
    """A tracker. ``score``: how sure it was of its last box, 0..1; 1 if it can't say."""

    @property
    def score(self) -> float: ...
    def start(self, bgr: Frame, box: Box) -> None: ...
    def update(self, bgr: Frame) -> Box: ...


class _Head(PeerModel):
    """FEAR-XS's head, which remembers the highest score of its last map."""

    score = 1.0

    def __call__(self, **inputs: Floats) -> list[Floats]:
        results = super().__call__(**inputs)
        self.score = float(1 / (1 + np.exp(-min(max(float(results[1].max()), -50.0), 50.0))))
        return results


class _Fear:
    def __init__(self, folder: Path) -> None:
        backbone, track = find_files(FEAR, folder, (f"{FEAR}_backbone*.onnx", f"{FEAR}_track*.onnx"))
        features: dict[str, tuple[int | None, ...]] = {"features": (1, 256, None, None)}
        image: dict[str, tuple[int | None, ...]] = {"image": (1, 3, None, None)}
        inputs = {"image": (1, 3, SEARCH_PX, SEARCH_PX), "template": (1, 256, 8, 8)}
        outputs = {"bbox": (1, 4, 16, 16), "cls": (1, 1, 16, 16)}
        self._head = _Head(track, inputs, outputs, 1)
        self._tracker = Fear(FEAR, PeerModel(backbone, image, features, 1), self._head)

    @property
    def score(self) -> float:
        return self._head.score

    def start(self, bgr: Frame, box: Box) -> None:
        self._tracker.start(bgr, box)

    def update(self, bgr: Frame) -> Box:
        return self._tracker.update(bgr)


class _NanoTrack:
    score = 1.0

    def __init__(self, folder: Path) -> None:
        self._tracker = open_nanotrack(NANOTRACK, folder, 1)

    def start(self, bgr: Frame, box: Box) -> None:
        self._tracker.start(bgr, box)

    def update(self, bgr: Frame) -> Box:
        return self._tracker.update(bgr)


def open_followers(folder: Path) -> tuple[Follower, Follower]:
    """The two trackers, one thread each. Raises InputError: files missing or not as expected."""
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; --peers names that of the trackers' ONNX files")
    return _Fear(folder), _NanoTrack(folder)
