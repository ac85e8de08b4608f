"""`efftam eval`."""
