"""The refusal of a back end that exists but can't run here."""

from __future__ import annotations


class BackendUnavailable(RuntimeError):
    """A back end that exists but can't run here. ``reason``: what is missing; ``remedy``: what to do about
    it."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason}; {remedy}")
        self.reason = reason
        self.remedy = remedy
