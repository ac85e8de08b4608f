"""Steering by the tracker's answers: gimbal control and the MAVLink bridge, without ROS."""
