"""One time line of a frame: what host and GPU did when, on one clock."""
