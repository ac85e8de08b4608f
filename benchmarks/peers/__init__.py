"""Trackers of other projects."""

from benchmarks.peers.fear import open_fear
from benchmarks.peers.nanotrack import open_nanotrack

__all__ = ["open_fear", "open_nanotrack"]
