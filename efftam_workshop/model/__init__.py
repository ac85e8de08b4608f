"""The EfficientTAM networks in PyTorch, for export."""
