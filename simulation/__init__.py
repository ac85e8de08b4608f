"""A simulated flight for tests and the demo: gimbal, autopilots, rendered camera; not installed."""

from simulation.processes import cpu_s, ros_environment, spinning

__all__ = ["cpu_s", "ros_environment", "spinning"]
