"""CUDA through cuda-python: checked calls, memory, one stream, kernels."""
