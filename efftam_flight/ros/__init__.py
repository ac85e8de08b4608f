"""The ROS nodes of gimbal control, MAVLink and positions."""
