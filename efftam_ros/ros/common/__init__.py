"""Code that the ROS nodes of all packages share."""
