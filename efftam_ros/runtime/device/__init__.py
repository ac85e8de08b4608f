"""The pipeline for back ends on an NVIDIA GPU. Its tensors stay in the GPU's memory."""
