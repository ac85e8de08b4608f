"""Reads images from messages, files, cameras and streams, and estimates the camera's motion from them."""
