"""Where on the ground the target is: from bearings, the camera's attitude and position, and its height."""
