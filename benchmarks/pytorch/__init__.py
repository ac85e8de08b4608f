"""The network in PyTorch as a pipeline, for comparisons of speed and of results."""
