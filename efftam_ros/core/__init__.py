"""The tracking logic: what is decided about a target in each image. Depends on numpy only."""
