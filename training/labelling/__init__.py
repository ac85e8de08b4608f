"""Labels footage that has none: from a video to clips with masks, and labels kept without their pixels."""
