"""Stand-ins for tests and demonstrations without hardware: gimbal, autopilots, rendered camera.

The autopilots behave as ArduPilot 4.7 and PX4 1.17 were measured to behave towards a camera component and a
client of their gimbal manager; they fly nothing.
"""
