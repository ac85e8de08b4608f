"""The node `efftam_tracker`."""
