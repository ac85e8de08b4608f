"""Policies for comparisons, never for flight: the two reference trackers, loaded by name."""
