"""Trains the networks that ship: `python -m training --help`. This package is not installed."""
