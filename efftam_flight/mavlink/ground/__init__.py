"""Reads the vehicle's position, and sends the target's position as CAMERA_TRACKING_GEO_STATUS and
FOLLOW_TARGET."""
