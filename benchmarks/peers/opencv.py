"""OpenCV's trackers."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box

OPENCV = ("csrt", "kcf", "mosse", "nano")
CONTRIB = (
    "needs OpenCV's contrib modules; replace opencv-python by: pip install opencv-contrib-python-headless"
)


class OpenCvTracker:
    """One OpenCV tracker with default parameters as `Peer`; it takes integer boxes and may report a
    failure."""

    def __init__(self, name: str, create: Callable[[], Any]) -> None:
        self.name, self._create = name, create
        self._tracker: Any = None

    def start(self, bgr: NDArray[np.uint8], box: Box) -> None:
        self._tracker = self._create()
        self._tracker.init(bgr, tuple(round(v) for v in box.xywh()))

    def update(self, bgr: NDArray[np.uint8]) -> Box | None:
        found, box = self._tracker.update(bgr)
        return Box(*(float(v) for v in box)) if found else None


def open_opencv(name: str, models: Path | None = None, threads: int = 0) -> OpenCvTracker:
    """Open one of `OPENCV`.

    ``models``: folder of NanoTrack's two ONNX files; ``threads``: OpenCV's (0: its default). Raises
    InputError: OpenCV without contrib modules, model files missing.
    """
    import cv2

    if threads:
        cv2.setNumThreads(threads)
    _only_errors()
    if name == "nano":
        return OpenCvTracker(name, _nano(models))
    # MOSSE is in OpenCV's legacy module; the others were moved out of it in 4.5.1.
    home = getattr(cv2, "legacy", None) if name == "mosse" else cv2
    create = getattr(home, f"Tracker{name.upper()}_create", None)
    if create is None:
        raise InputError(f"peer {name} {CONTRIB}")
    return OpenCvTracker(name, create)


def _only_errors() -> None:
    """Silence OpenCV 5's warning at every creation of NanoTrack."""
    import cv2 as opencv

    cv2: Any = opencv
    set_level = cv2.setLogLevel if hasattr(cv2, "setLogLevel") else cv2.utils.logging.setLogLevel
    set_level(2)  # LOG_LEVEL_ERROR


def _nano(models: Path | None) -> Callable[[], Any]:
    import cv2 as opencv

    cv2: Any = opencv  # its type hints do not know every build's trackers
    if not hasattr(cv2, "TrackerNano_create"):
        raise InputError(f"peer nano {CONTRIB}")
    if models is None:
        raise InputError("peer nano needs its two model files; give their folder with --peer-models DIR")
    backbone, head = nano_files(models)
    parameters = cv2.TrackerNano_Params()
    parameters.backbone, parameters.neckhead = str(backbone), str(head)
    try:
        cv2.TrackerNano_create(parameters)
    except cv2.error as error:
        raise InputError(
            f"{backbone} and {head} can't be loaded by OpenCV {cv2.__version__} ({error.err})"
        ) from None
    return lambda: cv2.TrackerNano_create(parameters)


def nano_files(models: Path) -> tuple[Path, Path]:
    """Backbone and head of the newest NanoTrack that OpenCV can run (version 2 at most).

    Accepts the file names of OpenCV's samples (nanotrack_backbone_sim.onnx, nanotrack_head_sim.onnx) and
    those with a version (nanotrack_v2_backbone.onnx, nanotrack_v2_head.onnx).
    """
    if not models.is_dir():
        raise InputError(
            f"{models} is not a folder; --peer-models names the folder of NanoTrack's ONNX files"
        )
    pairs = {}
    for backbone in models.glob("*backbone*.onnx"):
        head = backbone.with_name(backbone.name.replace("backbone", "head"))
        version = re.search(r"v(\d+)", backbone.name)
        number = int(version[1]) if version else 2
        if head.is_file() and number <= 2:
            pairs[number] = (backbone, head)
    if not pairs:
        raise InputError(
            f"{models} holds no pair *backbone*.onnx and *head*.onnx of NanoTrack version 1 or 2"
        )
    return pairs[max(pairs)]
