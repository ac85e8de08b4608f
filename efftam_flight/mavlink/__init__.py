"""MAVLink: the camera component, the client of the gimbal manager, and the bridge that connects both with the
tracker."""
