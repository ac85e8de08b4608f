"""Labels footage that has no labels: makes clips with masks of a video, and stores labels without pixels."""
