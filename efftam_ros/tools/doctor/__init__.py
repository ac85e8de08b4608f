"""The command `efftam doctor`."""
