"""The ROS 2 node: the only place where rclpy is imported."""
