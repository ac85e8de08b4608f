"""Converts FP32 graphs to strongly typed FP16 graphs."""
