"""Reasons for tests that only pass them on, and the check that every published one has its number."""

from collections.abc import Callable

from efftam_ros.core.reasons import NO_REASON, Reason, ReasonCode


def because(text: str) -> Reason:
    """A reason with this text; empty: none."""
    return Reason(ReasonCode.OTHER, text) if text else NO_REASON


def assert_numbered(message: object) -> None:
    """A message of ours has a known number of its reason exactly if it has a text."""
    text = getattr(message, "reason", "") or getattr(message, "message", "")
    if hasattr(message, "reason_code"):
        assert bool(text) == bool(message.reason_code), message
        assert message.reason_code in set(ReasonCode), message


def numbered(messages: list) -> Callable[[object], None]:
    """A callback that checks a message by `assert_numbered` and keeps it."""

    def on_message(message: object) -> None:
        assert_numbered(message)
        messages.append(message)

    return on_message
