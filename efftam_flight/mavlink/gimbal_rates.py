"""The rates on the wire: what is sent when, and the zeros that are owed at the end."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from efftam_flight.mavlink.standstill import Standstill
from efftam_flight.mavlink.zero_debt import Debt, Due, Situation
from efftam_flight.values import STOPPED, Rates

# PX4 stops a gimbal after 2 s without a wish; some gimbals shake at every repeated one.
KEEP_ALIVE_S = 0.2
ZERO_S = 0.1
DEAD_BAND = math.radians(0.05)
# The controller ticks at 50 Hz; after so long without it the gimbal is stopped here.
WATCHDOG_S = 0.3
# On a link that is cut the autopilot keeps an older rate than the last. After so long the gimbal's turning,
# which is seen for half a second, tells which.
EARLIER_S = 1.0
# Without a word of the gimbal's attitude for so long, it is said that zeros go on.
UNSEEN_S = 5.0


class GimbalRates:
    """One gimbal's rates; see `Debt` for how they end."""

    def __init__(self, send: Callable[[Rates], None]) -> None:
        self.standstill = Standstill()
        self._put = send
        self._wished = STOPPED
        self._wished_s = -math.inf
        self._sent = STOPPED
        self._sent_s = -math.inf
        self._turning: deque[tuple[float, Rates]] = deque()  # when, what moved it: of the last second
        self._debt: Debt | None = None
        self._due = Due.PAID

    @property
    def due(self) -> Due:
        return Due.PAID if self._debt is None else self._due

    def wish(self, rates: Rates, now_s: float) -> None:
        self._wished, self._wished_s = rates, now_s

    def owe(self) -> None:
        """Somebody who was us may have moved the gimbal."""
        self._debt = self._debt or Debt(STOPPED)

    def restarted(self) -> None:
        """The autopilot has forgotten what another wished."""
        if self._debt is not None:
            self._debt = replace(self._debt, is_contested=False)

    def rival(self, at: Situation, now_s: float) -> None:
        """Another moves the gimbal now: our rate ends, without a zero where that would stop theirs."""
        self._wished = STOPPED
        if self._debt is not None:
            if at.manager.gates:
                self.stop(now_s)
            else:
                self._end(now_s)
                self._sent = STOPPED
            self._debt = replace(self._debt, is_contested=True)

    def starved(self, now_s: float) -> bool:
        """Whether the controller fell silent in motion; its last wish then holds no longer."""
        starved = not (self._wished.is_zero and self._sent.is_zero) and now_s - self._wished_s > WATCHDOG_S
        if starved:
            self._wished = STOPPED
        return starved

    def unseen(self, now_s: float) -> bool:
        """Whether zeros go on because the gimbal's attitude says nothing."""
        debt = self._debt
        return debt is not None and now_s - debt.zeros_s > UNSEEN_S and not self.standstill.is_known(now_s)

    def update(self, steering: bool, at: Situation, now_s: float) -> None:
        """Send what is due: what changed at once, what holds now and then. ``steering``: the wish may be
        sent."""
        rates = self._wished if steering else STOPPED
        if not rates.is_zero:
            self._debt, self._due = Debt(rates), Due.ZERO
        elif self._debt is None:
            return
        else:
            # The last word is a zero also where it does not count, or another moves the gimbal.
            is_first = self._debt.ended_s == math.inf
            self._due = self._end(now_s).due(at, self.standstill, now_s)
            if self._due is Due.PAID:
                self._debt = None
                return
            if self._due is not Due.ZERO and not is_first:
                return
        changed = (
            rates.is_zero != self._sent.is_zero
            or abs(rates.pitch - self._sent.pitch) >= DEAD_BAND
            or abs(rates.yaw - self._sent.yaw) >= DEAD_BAND
            or (rates.is_zero and self._debt.zeros_s == math.inf)
        )
        if changed or now_s - self._sent_s >= (ZERO_S if rates.is_zero else KEEP_ALIVE_S):
            self._send(rates, now_s)

    def stop(self, now_s: float) -> None:
        """The wish ends; where a motion was sent, three zeros at once: a packet may be lost, and the next is
        a tick away."""
        self._wished = STOPPED
        if not self._sent.is_zero:
            for _ in range(3):
                self._send(STOPPED, now_s)

    def _end(self, now_s: float) -> Debt:
        """The debt, with the end of its motion."""
        assert self._debt is not None
        if self._debt.ended_s == math.inf:
            turned = self.standstill.motion(-math.inf, now_s)
            earlier = tuple(rates for sent_s, rates in self._turning if now_s - sent_s <= EARLIER_S)
            self._debt = replace(self._debt, ended_s=now_s, earlier=earlier, turned=turned)
        return self._debt

    def _send(self, rates: Rates, now_s: float) -> None:
        if rates.is_zero and self._debt is not None and self._debt.zeros_s == math.inf:
            self._debt = replace(self._debt, zeros_s=now_s)
        if not rates.is_zero:
            self._turning.append((now_s, rates))
            while now_s - self._turning[0][0] > EARLIER_S:
                self._turning.popleft()
        self._sent, self._sent_s = rates, now_s
        self._put(rates)
