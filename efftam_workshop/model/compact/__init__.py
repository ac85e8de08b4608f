"""The network CompactTAM in PyTorch."""
