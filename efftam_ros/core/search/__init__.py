"""Finding a lost target again: where it may be, where to look, what was seen there."""
