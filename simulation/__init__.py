"""A simulated flight for tests and the demo: gimbal, autopilots, rendered camera; not installed."""
