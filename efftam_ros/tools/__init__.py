"""The commands of `efftam`, one module or package each."""
