"""From a checkpoint to a bundle of ONNX graphs."""
