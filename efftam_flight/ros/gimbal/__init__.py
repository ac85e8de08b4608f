"""The gimbal controller as a node."""
