"""Computes the target's position on the ground from bearings and the camera's attitude, position and
height."""
