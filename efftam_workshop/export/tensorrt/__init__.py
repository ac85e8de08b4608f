"""Building the TensorRT engines of a bundle."""
