"""Exports a network: from a checkpoint to an ONNX bundle, to FP16 graphs, and to TensorRT engines."""
