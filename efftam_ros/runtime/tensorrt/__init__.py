"""TensorRT and TensorRT-RTX without another library between: engines built, kept and run."""
