"""The operator's seat: one viewer at a time may command, for as long as it is heard from."""

from __future__ import annotations

LEASE_S = 10.0


class Seat:
    """Held by one viewer (any hashable name). ``now_s`` of every call comes from one monotonic clock.

    The lease is renewed by whatever the holder sends; a holder silent for ``lease_s`` has lost the seat.
    """

    def __init__(self, lease_s: float = LEASE_S) -> None:
        self.lease_s = lease_s
        self._holder: str | None = None
        self._heard_s = 0.0

    def holder(self, now_s: float) -> str | None:
        """Who may command now."""
        if self._holder is not None and now_s - self._heard_s > self.lease_s:
            self._holder = None
        return self._holder

    def take(self, viewer: str, now_s: float) -> str | None:
        """Give the seat to ``viewer``, also from somebody else. Returns who lost it by this, None if
        nobody."""
        before = self.holder(now_s)
        self._holder, self._heard_s = viewer, now_s
        return before if before != viewer else None

    def heard(self, viewer: str, now_s: float) -> None:
        """``viewer`` sent something."""
        if self.holder(now_s) == viewer:
            self._heard_s = now_s

    def release(self, viewer: str) -> bool:
        """``viewer`` gives the seat up, or is gone. Returns whether it held it."""
        held = self._holder == viewer
        if held:
            self._holder = None
        return held
