"""`efftam doctor`."""
