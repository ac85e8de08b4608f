"""Trackers of other projects, for comparison on the same sequences."""
