"""The ROS 2 nodes of tracker and camera, and the code that the nodes of all packages share."""
