"""CompactTAM in PyTorch."""
