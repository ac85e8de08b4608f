"""Runs that are over: what was tracked in a video, shown image by image."""
