"""Reads and makes ROS messages and bags, without rclpy."""
