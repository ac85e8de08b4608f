"""Reads pictures of every form as an `Image`, and estimates the camera's motion from them."""
