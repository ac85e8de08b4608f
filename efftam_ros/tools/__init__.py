"""The commands of `efftam`, one file each."""
