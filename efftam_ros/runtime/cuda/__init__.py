"""CUDA through cuda-bindings: checked calls, memory, streams, kernels."""
