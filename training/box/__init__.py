"""The box head: from what the mask decoder answers to the four edges that people draw around the object."""
