"""The network EfficientTAM in PyTorch."""
