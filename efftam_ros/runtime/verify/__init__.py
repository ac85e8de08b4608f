"""Comparison of a back end with the CPU reference."""
