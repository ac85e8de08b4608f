"""The peer trackers by name."""

from __future__ import annotations

import argparse
from pathlib import Path

from efftam_ros.core.errors import InputError
from efftam_ros.tools.common.options import list_of
from efftam_ros.tools.eval.peers.fear import FEAR, open_fear
from efftam_ros.tools.eval.peers.nanotrack import NANOTRACK, open_nanotrack
from efftam_ros.tools.eval.peers.opencv import OPENCV, open_opencv
from efftam_ros.tools.eval.peers.peer import Peer

PEERS = (*OPENCV, *NANOTRACK, *FEAR)


def add_peer_arguments(group: argparse._ActionsContainer) -> None:
    """Add --peers and --peer-models."""
    group.add_argument(
        "--peers",
        type=list_of(PEERS),
        default=[],
        metavar="A,B",
        help=f"trackers of other projects: {', '.join(OPENCV)} (OpenCV), {', '.join((*NANOTRACK, *FEAR))}"
        " (onnxruntime); all but csrt, kcf and mosse need --peer-models",
    )
    group.add_argument(
        "--peer-models",
        type=Path,
        metavar="DIR",
        help="folder of the peers' ONNX files; NanoTrack: nanotrack_vN_backbone*.onnx and"
        " nanotrack_vN_head*.onnx, FEAR-XS: fear_xs_backbone*.onnx and fear_xs_track*.onnx",
    )


def open_peer(name: str, models: Path | None = None, threads: int = 0) -> Peer:
    """Open a peer.

    Args:
        name: One of `PEERS`.
        models: Folder of model files, for the peers that need some.
        threads: CPU threads, 0 for the library's default (OpenCV) or `default_threads` (onnxruntime).

    Raises:
        InputError: Unknown name, OpenCV without contrib modules, model files missing or not as expected.
    """
    if name in OPENCV:
        return open_opencv(name, models, threads)
    if name in NANOTRACK:
        return open_nanotrack(name, models, threads)
    if name in FEAR:
        return open_fear(name, models, threads)
    raise InputError(f"{name!r} is not a peer tracker; choose from {', '.join(PEERS)}")
