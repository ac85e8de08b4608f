"""The network in onnxruntime, on the CPU or on an NVIDIA GPU."""
