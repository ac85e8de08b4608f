"""The sub-commands of `efftam`. Each is a module or a package."""
