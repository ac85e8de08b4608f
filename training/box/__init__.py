"""Fits the head that places a box's edges: records a tracker's masks, fits shares, writes the head."""
