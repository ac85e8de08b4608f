"""Evaluates on real footage whether a tracker finds a target again after it disappeared."""
