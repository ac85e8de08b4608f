"""OpenCV's trackers. Its NanoTrack is left out, because the module `nanotrack` runs the same networks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box

OPENCV = ("csrt", "kcf", "mosse")


class OpenCvTracker:
    """An OpenCV tracker with default parameters and the interface `Peer`.

    Its first box is rounded to whole px. It may report a failure.
    """

    def __init__(self, name: str, create: Callable[[], Any]) -> None:
        self.name, self._create = name, create
        self._tracker: Any = None

    def start(self, bgr: NDArray[np.uint8], box: Box) -> None:
        self._tracker = self._create()
        self._tracker.init(bgr, tuple(round(v) for v in box.xywh()))

    def update(self, bgr: NDArray[np.uint8]) -> Box | None:
        found, box = self._tracker.update(bgr)
        return Box(*(float(v) for v in box)) if found else None


def open_opencv(name: str, _models: Path | None = None, threads: int = 0) -> OpenCvTracker:
    """Open one of `OPENCV`.

    ``threads``: threads of OpenCV in the whole process, 0: OpenCV's default. Raises InputError: OpenCV was
    installed without its contrib modules.
    """
    if threads:
        cv2.setNumThreads(threads)
    # MOSSE is in OpenCV's module legacy, the other trackers are in cv2 itself (since 4.5.1).
    home = getattr(cv2, "legacy", None) if name == "mosse" else cv2
    create = getattr(home, f"Tracker{name.upper()}_create", None)
    if create is None:
        raise InputError(
            f"peer {name} needs OpenCV's contrib modules; replace opencv-python by: pip install"
            " opencv-contrib-python-headless"
        )
    return OpenCvTracker(name, create)
