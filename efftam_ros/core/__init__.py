"""What to do: the tracking logic, numpy only."""
