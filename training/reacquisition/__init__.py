"""Evaluates reacquisition after a disappearance on real footage."""
