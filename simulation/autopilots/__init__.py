"""Stand-ins for ArduPilot 4.7, PX4 1.17, a gimbal device and a ground station.

Towards a camera component and a client of their gimbal manager, the stand-ins behave as the real autopilots
behaved in measurements. Flying is simulated only in the modes that follow a target.
"""
