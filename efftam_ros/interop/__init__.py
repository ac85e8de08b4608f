"""ROS message fields and bags, without rclpy."""
