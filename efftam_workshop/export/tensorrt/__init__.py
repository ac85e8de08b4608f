"""Builds the TensorRT engines of a bundle."""
