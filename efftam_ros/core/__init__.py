"""Tracking logic; depends on numpy only."""
