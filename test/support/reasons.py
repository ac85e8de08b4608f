"""Reasons for tests that only pass them on."""

from efftam_ros.core.reasons import NO_REASON, Reason, ReasonCode


def because(text: str) -> Reason:
    """A reason with this text; empty: none."""
    return Reason(ReasonCode.OTHER, text) if text else NO_REASON
