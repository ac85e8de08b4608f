"""The client of the autopilot's gimbal manager."""
