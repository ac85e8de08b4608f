"""Scores trackers of other projects and this package's one on sequences, as `efftam eval` does.

With --time their times are measured instead.
"""

from __future__ import annotations

import argparse
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers import timing
from benchmarks.peers.registry import Peer, add_peer_arguments, open_peer
from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_workshop.eval import command as own
from efftam_workshop.eval.command import FrameResult


def add_arguments(parser: argparse.ArgumentParser) -> None:
    own.add_arguments(parser, "*")
    group = parser.add_argument_group("peers")
    add_peer_arguments(group)
    group.add_argument("--only-peers", action="store_true", help="do not run this package's tracker")
    text = "measure times on drawn images, on one and two cores, instead of scores"
    group.add_argument("--time", action="store_true", help=text)
    text = "with --time: counted frames of each tracker (default 100)"
    group.add_argument("--frames", dest="timed_frames", type=int, default=100, metavar="N", help=text)


def run(args: argparse.Namespace) -> int:
    if args.together:
        raise InputError("peers follow one target; leave out --together")
    if not args.peers:
        raise InputError("no --peers; name trackers of other projects, as in --peers csrt")
    if args.time:
        return timing.run(args)
    if not args.folders:
        raise InputError("no FOLDER with sequences; give one, or --time")
    entries = {} if args.only_peers else own.own_entries(args)
    for name in args.peers:  # opened before the first run, so that errors are raised early
        opened = PeerTracker(open_peer(name, args.peer_models, args.threads))
        entries[name] = partial(lambda one, _targets: one, opened)
    return own.evaluate(args, entries)


class PeerTracker:
    """A tracker of another project with the interface `EvaluatedTracker`. All its boxes count as measured."""

    has_masks = False

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    def answers(
        self, bgr: NDArray[np.uint8], stamp_ns: int, firsts: list[Box] | None, want_mask: bool
    ) -> list[FrameResult]:
        if firsts is not None:
            self._peer.start(bgr, firsts[0])
            return [FrameResult(firsts[0], True)]
        box = self._peer.update(bgr)
        return [FrameResult(box, box is not None)]

    def close(self) -> None:
        return
