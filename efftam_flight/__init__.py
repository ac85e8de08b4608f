"""Flight by the tracker's answers: gimbal control, the MAVLink bridge and positions of targets. Only the
folders named `ros` need ROS."""
