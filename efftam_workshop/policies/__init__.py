"""Policies that are compared with and never fly: the two reference trackers, loaded by name."""
