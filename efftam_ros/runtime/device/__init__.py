"""The pipeline whose tensors stay on an NVIDIA GPU."""
