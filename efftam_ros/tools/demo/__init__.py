"""The command `efftam demo`."""
