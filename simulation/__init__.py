"""A simulated flight with gimbal, autopilots and rendered camera, for tests and the demo. It is not
installed."""

from simulation.processes import cpu_s, ros_environment, spinning

__all__ = ["cpu_s", "ros_environment", "spinning"]
