"""The nodes of gimbal control and MAVLink."""
