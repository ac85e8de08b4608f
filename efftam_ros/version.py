"""The version of the package. A TensorRT engine is built again when it changes."""

__version__ = "0.2.0"
