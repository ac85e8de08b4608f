"""Keeps messages coming that the autopilot does not send by itself.

A fresh link gets hardly anything, a restarted autopilot forgets what it was asked, and a slow link gives less
than was asked. So the arrivals are counted, and what comes too rarely is asked for again.
"""

from __future__ import annotations

from dataclasses import dataclass

CHECK_S = 2.0
# Asked so often without reaching half the rate: say so.
PATIENCE = 3
CANCEL = -1  # as an interval


@dataclass
class _Wanted:
    component: int
    rate_hz: float
    count: int = 0
    since_s: float | None = None  # None: not asked yet
    asked: int = 0


class Subscriptions:
    """Message intervals wanted of one system; ``ask(component, message id, interval in us)`` sends 511."""

    def __init__(self) -> None:
        self._wanted: dict[tuple[int, int], _Wanted] = {}
        self._cancelled: list[tuple[int, int, int]] = []

    def want(self, component: int, message_id: int, rate_hz: float) -> None:
        """From now on; another rate than before is asked for at once."""
        known = self._wanted.get((component, message_id))
        if known is None or known.rate_hz != rate_hz:
            self._wanted[component, message_id] = _Wanted(component, rate_hz)

    def drop(self, component: int, message_id: int) -> None:
        """Not wanted any more: cancelled where it was asked for."""
        wanted = self._wanted.pop((component, message_id), None)
        if wanted is not None and wanted.since_s is not None:
            self._cancelled.append((component, message_id, CANCEL))

    def restart(self) -> None:
        """The autopilot has forgotten all: ask again at once."""
        for wanted in self._wanted.values():
            wanted.since_s, wanted.asked = None, 0

    def heard(self, component: int, message_id: int) -> None:
        wanted = self._wanted.get((component, message_id))
        if wanted is not None:
            wanted.count += 1

    def due(self, now_s: float) -> tuple[list[tuple[int, int, int]], list[str]]:
        """What to ask now, as (component, message id, interval in us), and complaints."""
        asks, self._cancelled = self._cancelled, []
        complaints = []
        for (component, message_id), wanted in self._wanted.items():
            if wanted.since_s is not None:
                if now_s - wanted.since_s < CHECK_S:
                    continue
                rate_hz = wanted.count / (now_s - wanted.since_s)
                wanted.since_s, wanted.count = now_s, 0
                if rate_hz >= wanted.rate_hz / 2:
                    wanted.asked = 0
                    continue
                if wanted.asked == PATIENCE:
                    complaints.append(
                        f"message {message_id} of component {component} comes at {rate_hz:.1f} Hz instead of"
                        f" {wanted.rate_hz:g}; is the link too slow?"
                    )
            wanted.since_s, wanted.count = now_s, 0
            wanted.asked += 1
            asks.append((component, message_id, round(1e6 / wanted.rate_hz)))
        return asks, complaints
