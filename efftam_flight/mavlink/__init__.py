"""MAVLink: our camera component, the client of the gimbal's manager, and what joins them to the tracker."""
