"""Policies: which candidate is the target, what is remembered."""
