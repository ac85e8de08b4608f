"""Export of a network: checkpoint to ONNX bundle, FP16 graphs, TensorRT engines."""
