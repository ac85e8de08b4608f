"""ROS messages and bags, without rclpy."""
