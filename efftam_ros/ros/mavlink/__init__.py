"""The MAVLink bridge as a node."""
