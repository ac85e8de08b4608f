"""The errors that cross module boundaries; the text of each is one line."""

from __future__ import annotations


class InputError(ValueError):
    """The caller's input can't be used: what was wrong, the value, the remedy."""


class PipelineLostError(RuntimeError):
    """What a pipeline computes on is gone: no call will succeed again in this process."""


class BackendError(RuntimeError):
    """A back end that exists but can't run here. ``reason``: what is missing; ``remedy``: what to do about
    it."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason}; {remedy}")
        self.reason = reason
        self.remedy = remedy


def one_line(error: object) -> str:
    """The text of an error (or any text) without line breaks; its type's name where it has no text."""
    return " ".join(str(error).split()) or type(error).__name__
