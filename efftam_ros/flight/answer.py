"""Whether the gimbal turns by its rates: small ones until it does, none for a while where it stands."""

from __future__ import annotations

import math

from efftam_ros.flight.angles import wrapped
from efftam_ros.flight.values import Rates

# Turned so far along what was asked, it answers, rad.
ANSWERED = math.radians(0.3)
# Asked so much more than that in so long without an answer, it stands; then nothing is asked for a while.
ASKED, STANDS_S, REST_S = math.radians(1.0), 0.5, 1.0
# Without an attitude for so long, no answer is to be expected.
BLIND_S = 3.0
REASON = (
    "the gimbal stands against its rates: check its power, mode and stops (ArduPilot drives its mount 9 s"
    " after it booted)"
)


class Answer:
    """``first_rate``: the largest rate before it answers, rad/s; 0: no answer is waited for."""

    def __init__(self, first_rate: float) -> None:
        self._first_rate = first_rate
        self.forget()

    def forget(self) -> None:
        self._answers = self.stands = False
        self._rests_until_s, self._is_blind = -math.inf, False
        self._blind_since_s = math.inf
        self._begin: tuple[float, tuple[float, float]] | None = None  # when, the axis then
        self._asked = (0.0, 0.0)  # since then: yaw, pitch, rad
        self._asked_s = math.inf  # when that became enough for an answer
        self._strayed = 0.0  # how far it was from the axis then, at most, rad

    def rests(self, now_s: float) -> bool:
        """Whether nothing shall be asked."""
        return now_s < self._rests_until_s

    def limited(self, rates: Rates) -> Rates:
        """The rates, small until the gimbal answers; as they are where it can not, as no attitude comes."""
        size = math.hypot(rates.pitch, rates.yaw)
        if not self._first_rate or self._answers or self._is_blind or size <= self._first_rate:
            return rates
        share = self._first_rate / size
        return Rates(rates.pitch * share, rates.yaw * share)

    def take(self, sent: Rates, dt_s: float, axis: tuple[float, float] | None, now_s: float) -> None:
        """``sent``: the rates of the last ``dt_s``; ``axis``: yaw, in the frame of the rates, and pitch of
        the gimbal, rad, None where they are not known."""
        if axis is None:
            self._begin, self._blind_since_s = None, min(self._blind_since_s, now_s)
            self._is_blind = now_s - self._blind_since_s > BLIND_S
            return
        self._is_blind, self._blind_since_s = False, math.inf
        if self._begin is None:
            self._begin_at(now_s, axis)
            return
        begun_s, first = self._begin
        self._asked = (self._asked[0] + sent.yaw * dt_s, self._asked[1] + sent.pitch * dt_s)
        moved = (wrapped(axis[0] - first[0]), axis[1] - first[1])
        self._strayed = max(self._strayed, math.hypot(*moved))
        asked = math.hypot(*self._asked)
        if asked < ANSWERED:
            # Too little to be answered; what was asked long ago is not what is answered now.
            self._asked_s = math.inf
            if now_s - begun_s > STANDS_S:
                self._begin_at(now_s, axis)
            return
        self._asked_s = min(self._asked_s, now_s)
        if (moved[0] * self._asked[0] + moved[1] * self._asked[1]) / asked >= ANSWERED:
            self._answers, self.stands = True, False
            self._begin_at(now_s, axis)
        elif self._strayed >= ANSWERED or now_s - self._asked_s >= 2 * STANDS_S:
            self._begin_at(now_s, axis)
        elif now_s - self._asked_s >= STANDS_S and asked >= ASKED and self._first_rate:
            self._answers, self.stands, self._rests_until_s = False, True, now_s + REST_S
            self._begin_at(now_s, axis)

    def _begin_at(self, now_s: float, axis: tuple[float, float]) -> None:
        self._begin, self._asked, self._asked_s, self._strayed = (now_s, axis), (0.0, 0.0), math.inf, 0.0
