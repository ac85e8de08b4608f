"""The default policy, and the interface that every policy implements."""
