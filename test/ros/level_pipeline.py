"""A pipeline that really looks at the image: it follows the grey level that it was pointed at.

The scenes of `scene` hold two squares of different grey, so that the truth is known for every image and a
test can tell which of the two is followed.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np

from efftam_ros.core.errors import PipelineLostError
from efftam_ros.core.geometry import Box
from efftam_ros.core.types import Candidates
from efftam_ros.images.pixels import to_bgr
from simulation.null_pipeline import NullPipeline

WIDTH, HEIGHT = 320, 240
BRIGHT, GREY = 250, 130
FRAME_NS = 33_000_000
LOST = "cuStreamSynchronize failed: CUDA_ERROR_LAUNCH_FAILED (719); a kernel failed; restart it"


def bright_box(i: int) -> Box:
    """Where the bright square is in image ``i``."""
    return Box(40.0 + 4 * i, 60.0 + 2 * i, 24.0, 24.0)


def grey_box(i: int) -> Box:
    """Where the grey one is."""
    return Box(220.0 - 3 * i, 150.0, 30.0, 20.0)


def scene(i: int, width: int = WIDTH, height: int = HEIGHT) -> np.ndarray:
    """Image ``i`` as bgr8 [height, width, 3]."""
    image = np.full((height, width, 3), 20, np.uint8)
    for box, level in ((grey_box(i), GREY), (bright_box(i), BRIGHT)):
        x, y, w, h = (int(v) for v in box.xywh())
        image[y : y + h, x : x + w] = level
    return image


class LevelPipeline(NullPipeline):
    """Finds the pixels whose grey level is that of the prompt's centre, for each target its own; ``delay_s``
    stands for a slow network."""

    def __init__(self, delay_s: float = 0.0, max_targets: int = 1) -> None:
        self._delay_s = delay_s
        self._levels: dict[int, int] = {}
        self._is_lost = False
        self.closed = False
        super().__init__(max_targets=max_targets)

    def _compute(self, image, frame):
        super()._compute(image, frame)
        self._grey = to_bgr(image)[..., 1].astype(int)
        time.sleep(self._delay_s)
        if Path(os.environ.get("TEST_LOST_FILE", os.devnull)).is_file():
            self._is_lost = True
            raise PipelineLostError(LOST)
        if frame.look.prompt is not None:
            marked = frame.found[0].box(0)
            self._levels[frame.target] = self._grey[int(marked.cy), int(marked.cx)]
        frame.found = [self._found(frame.target)] * len(frame.look.views)

    def _found(self, target):
        ys, xs = np.nonzero(abs(self._grey - self._levels[target]) < 30)
        box = (
            Box(0, 0, 0, 0)
            if xs.size == 0
            else Box.from_edges(xs.min(), ys.min(), xs.max() + 1, ys.max() + 1)
        )
        edges = [np.nan] * 4 if box.is_empty else box.edges()
        return Candidates(
            boxes=np.array([edges], np.float32),
            areas=np.array([box.area], np.float32),
            ious=np.array([0.95], np.float32),
            presence_logit=-8.0 if box.is_empty else 8.0,
        )

    def close(self):
        if self._is_lost:
            os.abort()  # as libraries may that free what they held on a device that is gone
        super().close()
        self.closed = True
