"""The tracker NanoTrack, versions 2 and 3, on onnxruntime.

Source: the project HonglinChu/SiamTrackers, folder NanoTrack (Apache-2.0), which has no paper. It is a
Siamese tracker. For each cell its head predicts two class scores and the distances to the four edges of the
box, as in Chen et al., "Siamese Box Adaptive Network for Visual Tracking", CVPR 2020. The tuning is that of
the project's configv2.yaml and configv3.yaml. This code is written from the algorithm. Boxes have half-open
pixel edges and are not rounded.

Images are BGR 0..255 without normalisation. The template is a square of side `context_side` around the first
box, resized to 127 px. The search region is a square around the last box, resized to 255 px; its side is
255/127 of the last box's `context_side`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.model_files import Floats, PeerModel, find_files
from benchmarks.peers.siamese import Distances, Tuning, choose, context_side, crop, mean_colour
from efftam_ros.core.geometry import Box

TEMPLATE_PX, SEARCH_PX, STRIDE_PX = 127, 255, 16
MIN_BOX_PX = 4.0


@dataclass(frozen=True)
class Version:
    """A published version: its tuning, the channels of its features, and the cells per side of its map."""

    tuning: Tuning
    channels: int
    cells: int


NANOTRACK = {
    "nanotrack_v2": Version(Tuning(penalty=0.150, window=0.490, rate=0.385), channels=48, cells=16),
    "nanotrack_v3": Version(Tuning(penalty=0.138, window=0.455, rate=0.348), channels=96, cells=15),
}


class NanoTrack:
    """The tracker with the interface `Peer`. It never reports a failure, so its ``score`` is always 1."""

    score = 1.0

    def __init__(self, name: str, version: Version, backbone: PeerModel, head: PeerModel) -> None:
        self.name = name
        self._tuning = version.tuning
        self._backbone, self._head = backbone, head
        self._box = Box(0.0, 0.0, MIN_BOX_PX, MIN_BOX_PX)
        self._outside: NDArray[np.uint8] = np.zeros(3, np.uint8)
        self._template: Floats = np.zeros(0, np.float32)
        self.highest = 1.0
        """The highest score of the last map, 0..1."""

    def start(self, bgr: NDArray[np.uint8], box: Box) -> None:
        self._box, self._outside = box, mean_colour(bgr)
        self._template = self._features(bgr, float(context_side(box.width, box.height)), TEMPLATE_PX)

    def update(self, bgr: NDArray[np.uint8]) -> Box:
        last = self._box
        template_side = float(context_side(last.width, last.height))
        scale = TEMPLATE_PX / template_side  # px of the region per px of the image
        features = self._features(bgr, template_side * SEARCH_PX / TEMPLATE_PX, SEARCH_PX)
        classes, edges = self._head(input1=self._template, input2=features)
        cells = Distances(_foreground(classes[0]), *edges[0].astype(np.float64))
        self.highest = float(cells.score.max())
        choice = choose(cells, STRIDE_PX, (last.width * scale, last.height * scale), self._tuning)
        height, width = bgr.shape[:2]
        self._box = Box.from_centre(
            float(np.clip(last.cx + choice.dx / scale, 0, width)),
            float(np.clip(last.cy + choice.dy / scale, 0, height)),
            float(np.clip(choice.width / scale, MIN_BOX_PX, width)),
            float(np.clip(choice.height / scale, MIN_BOX_PX, height)),
        )
        return self._box

    def _features(self, bgr: NDArray[np.uint8], side_px: float, size: int) -> Floats:
        """Return the features of a square of ``side_px`` image px around the box, resized to ``size`` px."""
        count = max(2, round(side_px))
        left, top = round(self._box.cx - side_px / 2), round(self._box.cy - side_px / 2)
        return self._backbone(input=crop(bgr, (left, top, count, count), self._outside, size))[0]


def _foreground(logits: Floats) -> NDArray[np.float64]:
    """Return the foreground's share of the softmax over background and foreground logits [2, n, n]."""
    background, foreground = logits.astype(np.float64)
    return np.asarray(1 / (1 + np.exp(np.clip(background - foreground, -500, 500))))


def open_nanotrack(name: str, models: Path | None, threads: int = 0) -> NanoTrack:
    """Open a version of `NANOTRACK`.

    ``models``: folder of its model files. ``threads``: CPU threads, 0: `default_threads`. Raises InputError:
    files are missing, or have other inputs or outputs.
    """
    version = NANOTRACK[name]
    backbone, head = find_files(name, models, (f"{name}_backbone*.onnx", f"{name}_head*.onnx"))
    channels, cells = version.channels, version.cells
    return NanoTrack(
        name,
        version,
        PeerModel(backbone, {"input": (1, 3, None, None)}, {"output": (1, channels, None, None)}, threads),
        PeerModel(
            head,
            {"input1": (1, channels, 8, 8), "input2": (1, channels, 16, 16)},
            {"output1": (1, 2, cells, cells), "output2": (1, 4, cells, cells)},
            threads,
        ),
    )
