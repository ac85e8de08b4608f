"""Back ends that use onnxruntime, with its providers for CPU, CUDA and TensorRT."""
