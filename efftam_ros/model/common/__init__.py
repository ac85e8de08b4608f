"""What the networks in PyTorch share."""
