"""The command `efftam bench`."""
