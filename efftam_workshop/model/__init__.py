"""The networks EfficientTAM and CompactTAM in PyTorch, for training and export."""
