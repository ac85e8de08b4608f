"""Exports a PyTorch network to a bundle of ONNX graphs."""
