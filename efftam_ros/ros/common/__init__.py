"""What the nodes share."""
