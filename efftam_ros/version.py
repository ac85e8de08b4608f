"""The version of the package. TensorRT engines are built again when the version changes."""

__version__ = "0.2.0"
