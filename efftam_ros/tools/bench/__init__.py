"""`efftam bench`."""
