"""The identity network: tells individuals apart by the crops of their boxes."""
