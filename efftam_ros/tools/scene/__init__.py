"""A synthetic drone video with exact truth."""
