"""The ROS node of the gimbal controller."""
