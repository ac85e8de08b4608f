"""Trains the compact networks: `python -m training --help`. Not installed with the package."""
