"""Positions: reads the vehicle's, and sends the target's as CAMERA_TRACKING_GEO_STATUS and FOLLOW_TARGET."""
