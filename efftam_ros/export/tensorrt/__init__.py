"""TensorRT engines of a bundle: built, compared, kept."""
