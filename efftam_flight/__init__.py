"""Uses the tracker's answers in flight: steers a gimbal, connects the tracker with MAVLink, and computes the
positions of targets on the ground. Only the folders named `ros` need ROS."""
