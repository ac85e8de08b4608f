"""The command `efftam profile`."""
