"""Exceptions that cross module boundaries; the text of each is one line."""

from __future__ import annotations


class InputError(ValueError):
    """Invalid input. The text states what is wrong, the value and the remedy."""


class PipelineLostError(RuntimeError):
    """The device behind a pipeline has failed permanently: no call will succeed again in this process."""


class BackendError(RuntimeError):
    """A back end exists but can't run here. ``reason``: what is missing; ``remedy``: how to fix it."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason}; {remedy}")
        self.reason = reason
        self.remedy = remedy


def one_line(error: object) -> str:
    """The text of an error, or any text, without line breaks; the type's name if the text is empty."""
    return " ".join(str(error).split()) or type(error).__name__


MOST_SHOWN = 80
"""Most characters of an external text repeated in a message."""


def shown(text: object) -> str:
    """Format an external value for errors, logs and diagnostics: text is quoted; one line, at most 80
    characters."""
    full = text[: MOST_SHOWN + 1] if isinstance(text, str) else str(text)
    cut = full[:MOST_SHOWN] + "..." if len(full) > MOST_SHOWN else full
    return repr(cut) if isinstance(text, str) else " ".join(cut.split())
