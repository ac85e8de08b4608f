"""The network in PyTorch, for export and training only."""
