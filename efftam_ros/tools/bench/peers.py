"""Opens the trackers of other projects that take turns with ours in `efftam bench`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from efftam_ros.core.types import Frame, Prompt
from efftam_ros.tools.bench.machine import resident_mb
from efftam_ros.tools.eval.peers.peer import Peer
from efftam_ros.tools.eval.peers.registry import open_peer

PEER = "peer"
"""What stands in the place of a back end."""


@dataclass
class PeerContender:
    """A peer tracker. ``start_up_s`` and ``resident_mb`` as those of `Contender`."""

    peer: Peer
    start_up_s: float = float("nan")
    resident_mb: float = float("nan")

    backend = PEER

    @property
    def name(self) -> str:
        return self.peer.name

    @property
    def bundle(self) -> str:
        return self.peer.name

    def step(self, frame: Frame, prompt: Prompt | None) -> Mapping[str, float]:
        """Process a frame in bgr8; a prompt must be a box. Its stages are not known."""
        image = frame.image
        bgr = image.rows.reshape(image.height, image.width, 3)
        if prompt is not None and prompt.box is not None:
            self.peer.start(bgr, prompt.box)
        else:
            self.peer.update(bgr)
        return {}


def open_peers(
    names: Sequence[str], models: Path | None, threads: int, first: tuple[Frame, Prompt | None]
) -> list[PeerContender]:
    """Open the peers and run the first frame, which has the prompt.

    ``models`` and ``threads``, and the errors: as in `open_peer`.
    """
    contenders = []
    for name in names:
        before_mb, start = resident_mb(), time.perf_counter()
        contender = PeerContender(open_peer(name, models, threads))
        contender.step(*first)
        contender.start_up_s = time.perf_counter() - start
        contender.resident_mb = resident_mb() - before_mb
        contenders.append(contender)
    return contenders
