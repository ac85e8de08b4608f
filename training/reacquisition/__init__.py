"""Judges returns after a disappearance on real footage."""
