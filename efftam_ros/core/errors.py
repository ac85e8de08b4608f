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


MOST_SHOWN = 80
"""Characters of a foreign text that a message repeats."""


def shown(text: object) -> str:
    """A foreign value as an error, a log line or diagnostics may repeat it: quoted where it is text, one
    line, cut after 80 characters."""
    full = text[: MOST_SHOWN + 1] if isinstance(text, str) else str(text)
    cut = full[:MOST_SHOWN] + "..." if len(full) > MOST_SHOWN else full
    return repr(cut) if isinstance(text, str) else " ".join(cut.split())
