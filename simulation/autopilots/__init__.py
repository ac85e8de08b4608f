"""Stand-ins for ArduPilot 4.7, PX4 1.17, a gimbal device and a ground station.

The autopilots behave as the real ones were measured to behave towards a camera component and a client of
their gimbal manager; they fly nothing.
"""
