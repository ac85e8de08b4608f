"""Trackers of other projects."""

from benchmarks.peers.fear import SEARCH_PX, Fear
from benchmarks.peers.model_files import Floats, PeerModel, find_files
from benchmarks.peers.nanotrack import open_nanotrack

__all__ = ["SEARCH_PX", "Fear", "Floats", "PeerModel", "find_files", "open_nanotrack"]
