"""The version of the package, which engines, bundles and commands state."""

__version__ = "0.2.0"
