"""Fits the placement of the box's edges: records a tracker's masks, fits shares, writes them into a
bundle."""
