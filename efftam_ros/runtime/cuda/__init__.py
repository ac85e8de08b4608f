"""Wraps the CUDA driver (by cuda-bindings): checked calls, memory, streams and kernels."""
