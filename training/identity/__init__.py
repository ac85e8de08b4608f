"""Trains the identity network, which tells individuals apart by the crops of their boxes."""
