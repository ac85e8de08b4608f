"""The tracker FEAR-XS on onnxruntime.

Source: Borsuk et al., "FEAR: Fast, Efficient, Accurate and Robust Visual Tracker", ECCV 2022. The tuning is
that of siam_tracker.yaml in the project PinataFarms/FEARTracker (MIT). This code is written from the
algorithm. As in that project, the box from which the next crop is made is rounded; the reported box is not.

Images are RGB 0..255; the networks normalise them. The template is the box grown by 0.2 of its size on every
side, resized to 128 x 128 px. The search region is the last box grown by 2 of its size on every side, resized
to 256 x 256 px. Both are resized without regard to the aspect ratio, so the last box is a square of 256/5 px
in the search region.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.model_files import Floats, PeerModel, find_files
from benchmarks.peers.siamese import Distances, Region, Tuning, choose, crop, mean_colour
from efftam_ros.core.geometry import Box

TEMPLATE_PX, SEARCH_PX, STRIDE_PX = 128, 256, 16
TEMPLATE_GROWTH, SEARCH_GROWTH = 0.2, 2.0
MIN_BOX_PX = 3
TUNING = Tuning(penalty=0.062, window=0.38, rate=0.765)
FEAR = ("fear_xs",)
_LAST_PX = SEARCH_PX / (1 + 2 * SEARCH_GROWTH)


class Fear:
    """The tracker with the interface `Peer`. It never reports a failure.

    ``score``: the highest score of its last map, 0..1.
    """

    score = 1.0

    def __init__(self, name: str, backbone: PeerModel, head: PeerModel) -> None:
        self.name = name
        self._backbone, self._head = backbone, head
        self._box: Region = (0, 0, MIN_BOX_PX, MIN_BOX_PX)
        self._outside: NDArray[np.uint8] = np.zeros(3, np.uint8)
        self._template: Floats = np.zeros(0, np.float32)

    def start(self, bgr: NDArray[np.uint8], box: Box) -> None:
        self._box, self._outside = _whole(box), mean_colour(bgr)
        template = crop(bgr, grown(self._box, TEMPLATE_GROWTH), self._outside, TEMPLATE_PX)
        self._template = self._backbone(image=_rgb(template))[0]

    def update(self, bgr: NDArray[np.uint8]) -> Box:
        left, top, width, height = region = grown(self._box, SEARCH_GROWTH)
        image = crop(bgr, region, self._outside, SEARCH_PX)
        edges, logits = self._head(image=_rgb(image), template=self._template)
        score = 1 / (1 + np.exp(np.clip(-logits[0, 0].astype(np.float64), -500, 500)))
        self.score = float(score.max())
        cells = Distances(score, *edges[0].astype(np.float64))
        choice = choose(cells, STRIDE_PX, (_LAST_PX, _LAST_PX), TUNING)
        x_scale, y_scale = width / SEARCH_PX, height / SEARCH_PX
        found = Box.from_centre(
            left + (SEARCH_PX / 2 + choice.dx) * x_scale,
            top + (SEARCH_PX / 2 + choice.dy) * y_scale,
            choice.width * x_scale,
            choice.height * y_scale,
        )
        answer = inside(found, bgr.shape[1], bgr.shape[0])
        self._box = _whole(answer)
        return answer


def grown(box: Region, growth: float) -> Region:
    """Return the box grown by ``growth`` of its size on every side, in whole px and at least 2 px a side."""
    x, y, width, height = box
    return (
        int(x - width * growth),
        int(y - height * growth),
        max(2, int(width * (1 + 2 * growth))),
        max(2, int(height * (1 + 2 * growth))),
    )


def inside(box: Box, width: int, height: int) -> Box:
    """Return the part of a box inside an image of this size, px, with sides of at least `MIN_BOX_PX`."""
    x = min(max(0.0, box.x), width - MIN_BOX_PX)
    y = min(max(0.0, box.y), height - MIN_BOX_PX)
    right = min(max(x + MIN_BOX_PX, box.x1), width)
    bottom = min(max(y + MIN_BOX_PX, box.y1), height)
    return Box.from_edges(x, y, right, bottom)


def _whole(box: Box) -> Region:
    width, height = max(MIN_BOX_PX, round(box.width)), max(MIN_BOX_PX, round(box.height))
    return round(box.x), round(box.y), width, height


def _rgb(bgr: Floats) -> Floats:
    """Return an image [1, 3, H, W] with the channels in reverse order, from BGR to RGB."""
    return np.ascontiguousarray(bgr[:, ::-1])


def open_fear(name: str, models: Path | None, threads: int = 0) -> Fear:
    """Open FEAR-XS.

    ``models``: folder of its model files. ``threads``: CPU threads, 0: `default_threads`. Raises InputError:
    files are missing, or have other inputs or outputs.
    """
    backbone, track = find_files(name, models, (f"{name}_backbone*.onnx", f"{name}_track*.onnx"))
    return Fear(
        name,
        PeerModel(backbone, {"image": (1, 3, None, None)}, {"features": (1, 256, None, None)}, threads),
        PeerModel(
            track,
            {"image": (1, 3, SEARCH_PX, SEARCH_PX), "template": (1, 256, 8, 8)},
            {"bbox": (1, 4, 16, 16), "cls": (1, 1, 16, 16)},
            threads,
        ),
    )
