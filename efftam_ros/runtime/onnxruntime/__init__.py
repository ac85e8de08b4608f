"""Back ends on onnxruntime: CPU, CUDA and TensorRT providers."""
