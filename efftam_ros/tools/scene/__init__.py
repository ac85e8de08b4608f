"""Renderer of a synthetic drone video with exact ground truth."""
