"""The rates on the wire: what is sent when, and zeros until the gimbal stands."""

from __future__ import annotations

import math
from collections.abc import Callable

from efftam_ros.flight.mavlink.standstill import Standstill
from efftam_ros.flight.values import STOPPED, Rates

# PX4 stops a gimbal after 2 s without a wish; some gimbals shake at every repeated one.
KEEP_ALIVE_S = 0.2
ZERO_S = 0.1
DEAD_BAND = math.radians(0.05)
# The controller ticks at 50 Hz; after so long without it the gimbal is stopped here.
WATCHDOG_S = 0.3
# Without a word of the gimbal's attitude for so long, it is said that zeros go on.
UNSEEN_S = 5.0


class GimbalRates:
    """One gimbal's rates. Zeros are owed from the first motion that was asked for, or from `owe`, until the
    gimbal's attitude says that it stands: neither their number nor a time ends them."""

    def __init__(self, send: Callable[[Rates], None]) -> None:
        self.standstill = Standstill()
        self._put = send
        self._wished = STOPPED
        self._wished_s = -math.inf
        self._sent = STOPPED
        self._sent_s = -math.inf
        self._motion: Rates | None = None  # whose end is owed
        self._zeros_s = math.inf  # since when zeros go out
        self._yielded = False

    @property
    def owed(self) -> bool:
        """Whether the gimbal may still turn by what was sent."""
        return self._motion is not None and not self._yielded

    @property
    def moving(self) -> bool:
        """Whether the last word on the wire was a motion."""
        return not self._sent.is_zero

    def wish(self, rates: Rates, now_s: float) -> None:
        self._wished, self._wished_s = rates, now_s

    def owe(self) -> None:
        """Somebody who was us may have moved the gimbal."""
        self._motion = self._motion or STOPPED

    def yield_gimbal(self, now_s: float) -> None:
        """Another moves the gimbal now, and a zero would stop it: none goes out, unless the gimbal turns on
        by our last motion, which may have arrived after theirs."""
        self._zeros_s, self._yielded, self._sent = now_s, True, STOPPED

    def starved(self, now_s: float) -> bool:
        """Whether the controller fell silent in motion; its last wish then holds no longer."""
        starved = not (self._wished.is_zero and self._sent.is_zero) and now_s - self._wished_s > WATCHDOG_S
        if starved:
            self._wished = STOPPED
        return starved

    def unseen(self, now_s: float) -> bool:
        """Whether zeros go on because the gimbal's attitude says nothing."""
        return self.owed and now_s - self._zeros_s > UNSEEN_S and not self.standstill.is_known(now_s)

    def update(self, steering: bool, contested: bool, now_s: float) -> None:
        """Send what is due: what changed at once, what holds now and then. ``steering``: the wish may be
        sent; ``contested``: others may move the gimbal, and one that does so ends the zeros."""
        rates = self._wished if steering else STOPPED
        if not rates.is_zero:
            self._motion, self._zeros_s, self._yielded = rates, math.inf, False
        elif self._motion is None:
            return
        elif self._ended(self._motion, contested, now_s):
            self._motion, self._yielded = None, False
            return
        elif self._yielded and not self.standstill.reaches(self._zeros_s, now_s):
            return
        changed = (
            rates.is_zero != self._sent.is_zero
            or abs(rates.pitch - self._sent.pitch) >= DEAD_BAND
            or abs(rates.yaw - self._sent.yaw) >= DEAD_BAND
            or (rates.is_zero and self._zeros_s == math.inf)
        )
        if changed or now_s - self._sent_s >= (ZERO_S if rates.is_zero else KEEP_ALIVE_S):
            self._send(rates, now_s)

    def stop(self, now_s: float) -> None:
        """The wish ends; where a motion was sent, three zeros at once: a packet may be lost, and the next is
        a tick away."""
        self._wished = STOPPED
        if self.moving:
            for _ in range(3):
                self._send(STOPPED, now_s)

    def _ended(self, motion: Rates, contested: bool, now_s: float) -> bool:
        if self.standstill.stands(self._zeros_s, now_s):
            return True
        # A motion of another looks different; one of which nothing is known here is taken for theirs.
        return contested and (motion.is_zero or self.standstill.turns_otherwise(motion, self._zeros_s, now_s))

    def _send(self, rates: Rates, now_s: float) -> None:
        if rates.is_zero and self._zeros_s == math.inf:
            self._zeros_s = now_s
        self._sent, self._sent_s = rates, now_s
        self._put(rates)
