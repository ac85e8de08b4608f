"""EfficientTAM in PyTorch."""
