"""Records what host and GPU did within a frame, on one clock."""
