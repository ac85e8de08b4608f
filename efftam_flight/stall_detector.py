"""Detects a stalled gimbal, one that does not turn although rates are sent.

Rates are limited until the gimbal's attitude shows that it moves. When it is stalled, nothing is sent for a
while.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from efftam_flight.angles import wrapped
from efftam_flight.values import Rates
from efftam_flight.waits import LAG_S, NO_ANSWER_EXPECTED_S, STALL_REST_S, STANDS_S

# A gimbal that has turned this far in the commanded direction responds, rad.
ANSWERED = math.radians(0.3)
# A gimbal that was commanded to turn this far and did not respond is stalled, rad.
ASKED = math.radians(1.0)


@dataclass
class _Trial:
    """One comparison of the commanded turn with the gimbal's attitude.

    ``begun_s``: steady time of its start. ``first``: yaw and pitch of the gimbal at the start, rad.
    ``asked``: commanded turn since the start, yaw and pitch, rad. ``asked_s``: when ``asked`` became large
    enough for a visible response. ``strayed``: largest distance from ``first`` since the start, rad.
    """

    begun_s: float
    first: tuple[float, float]
    asked: tuple[float, float] = (0.0, 0.0)
    asked_s: float = math.inf
    strayed: float = 0.0


class StallDetector:
    """Compares the rates that were sent with the gimbal's attitude. ``first_rate``: the largest rate that is
    sent before the gimbal has responded, rad/s; 0: no limit, and no stall is detected."""

    def __init__(self, first_rate: float) -> None:
        self._first_rate = first_rate
        self.forget()

    def forget(self) -> None:
        self._answers = self.stands = False
        self._rests_until_s, self._is_blind = -math.inf, False
        self._blind_since_s = math.inf
        self._trial: _Trial | None = None
        # Commands too recent for a response: (steady time in s, commanded turn in yaw, in pitch, rad).
        self._unanswered: deque[tuple[float, float, float]] = deque()

    def rests(self, now_s: float) -> bool:
        """Return whether no motion may be commanded now, because the gimbal stalled less than `STALL_REST_S`
        ago."""
        return now_s < self._rests_until_s

    def limited(self, rates: Rates) -> Rates:
        """Return the rates, limited until the gimbal's attitude shows that it moves. If no attitude arrives,
        the rates are not limited."""
        if not self._first_rate or self._answers or self._is_blind:
            return rates
        return rates.limited(self._first_rate)

    def take(self, sent: Rates, dt_s: float, axis: tuple[float, float] | None, now_s: float) -> None:
        """Compare the rates that were sent with the gimbal's motion.

        ``sent``: the rates that held for the last ``dt_s`` seconds. ``axis``: yaw, in the frame of the rates,
        and pitch of the gimbal, rad; None if unknown.
        """
        self._unanswered.append((now_s, sent.yaw * dt_s, sent.pitch * dt_s))
        if axis is None:
            self._unanswered.clear()
            self._trial, self._blind_since_s = None, min(self._blind_since_s, now_s)
            self._is_blind = now_s - self._blind_since_s > NO_ANSWER_EXPECTED_S
            return
        self._is_blind, self._blind_since_s = False, math.inf
        trial, anew = self._trial, _Trial(now_s, axis)
        if trial is None:
            self._trial = anew
            return
        # The gimbal can't have responded yet to commands younger than its lag.
        while self._unanswered and now_s - self._unanswered[0][0] >= LAG_S:
            _, yaw, pitch = self._unanswered.popleft()
            trial.asked = (trial.asked[0] + yaw, trial.asked[1] + pitch)
        moved = (wrapped(axis[0] - trial.first[0]), axis[1] - trial.first[1])
        trial.strayed = max(trial.strayed, math.hypot(*moved))
        asked = math.hypot(*trial.asked)
        if asked < ANSWERED:
            # The commanded turn is too small for a visible response. After STANDS_S the comparison starts
            # again, because the gimbal has long responded to older commands.
            trial.asked_s = math.inf
            if now_s - trial.begun_s > STANDS_S:
                self._trial = anew
            return
        trial.asked_s = min(trial.asked_s, now_s)
        if (moved[0] * trial.asked[0] + moved[1] * trial.asked[1]) / asked >= ANSWERED:
            self._answers, self.stands = True, False
            self._trial = anew
        elif trial.strayed >= ANSWERED or now_s - trial.asked_s >= 2 * STANDS_S:
            self._trial = anew
        elif now_s - trial.asked_s >= STANDS_S and asked >= ASKED and self._first_rate:
            self._answers, self.stands, self._rests_until_s = False, True, now_s + STALL_REST_S
            self._trial = anew
