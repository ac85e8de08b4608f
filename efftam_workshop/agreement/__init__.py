"""Compares converted or built graphs with the same graphs in FP32 on the CPU."""
