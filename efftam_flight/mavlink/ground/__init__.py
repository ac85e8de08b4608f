"""The vehicle and the target on the ground: position, tracking status 276, FOLLOW_TARGET."""
