"""`efftam profile`."""
