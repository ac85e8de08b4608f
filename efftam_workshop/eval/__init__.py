"""The command `efftam eval`."""
