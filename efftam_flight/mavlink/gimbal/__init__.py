"""The client of the autopilot's gimbal manager: control, rates, attitude and the stop sequence."""
