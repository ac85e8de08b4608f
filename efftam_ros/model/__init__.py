"""The networks in PyTorch, for export, training and benchmarks."""
