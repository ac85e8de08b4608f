"""The table of trackers of other projects, by name, and their common interface."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.fear import FEAR, open_fear
from benchmarks.peers.nanotrack import NANOTRACK, open_nanotrack
from benchmarks.peers.opencv import OPENCV, open_opencv
from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_ros.tools.common.options import list_of


class Peer(Protocol):
    """A tracker that receives the target's box on one frame, and returns a box for every later frame."""

    @property
    def name(self) -> str: ...

    def start(self, bgr: NDArray[np.uint8], box: Box) -> None:
        """Start to track the target in ``box``, px, of a frame, uint8 [H, W, 3] BGR."""
        ...

    def update(self, bgr: NDArray[np.uint8]) -> Box | None:
        """Return the box in the next frame, px; None if the tracker reports a failure."""
        ...


PEERS: dict[str, Callable[..., Peer]] = {
    **dict.fromkeys(OPENCV, open_opencv),
    **dict.fromkeys(NANOTRACK, open_nanotrack),
    **dict.fromkeys(FEAR, open_fear),
}
"""For each peer tracker, the function that opens it."""


def add_peer_arguments(group: argparse._ActionsContainer) -> None:
    """Add --peers and --peer-models."""
    group.add_argument(
        "--peers",
        type=list_of(tuple(PEERS)),
        default=[],
        metavar="A,B",
        help=f"trackers of other projects: {', '.join(OPENCV)} (OpenCV), {', '.join((*NANOTRACK, *FEAR))}"
        " (onnxruntime); these need --peer-models",
    )
    group.add_argument(
        "--peer-models",
        type=Path,
        metavar="DIR",
        help="folder of the peers' ONNX files; NanoTrack: nanotrack_vN_backbone*.onnx and"
        " nanotrack_vN_head*.onnx, FEAR-XS: fear_xs_backbone*.onnx and fear_xs_track*.onnx",
    )


def open_peer(name: str, models: Path | None = None, threads: int = 0) -> Peer:
    """Open one of `PEERS`.

    ``models``: folder of model files, for peers that need some. ``threads``: CPU threads; 0: the library's
    default (OpenCV) or `default_threads` (onnxruntime). Raises InputError: the name is unknown, OpenCV has no
    contrib modules, or model files are missing or have other inputs or outputs.
    """
    if name not in PEERS:
        raise InputError(f"{name!r} is not a peer tracker; choose from {', '.join(PEERS)}")
    return PEERS[name](name, models, threads)
