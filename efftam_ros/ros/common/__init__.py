"""Code shared by the nodes."""
