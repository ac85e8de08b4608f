"""The command `efftam doctor`, which checks what can run on this computer."""
