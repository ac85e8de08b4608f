"""The network in PyTorch as a pipeline: the baseline of speed, and the reference of values."""
