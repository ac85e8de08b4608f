"""The end of steering: the zeros that are owed to a gimbal that was moved, by kind of its manager.

The state that the manager keeps decides. PX4 obeys the component in control alone and keeps the last rate for
2 s: zeros go before the release, and count only while we are in control. ArduPilot obeys whoever speaks and
keeps the last rate for ever: a zero is owed whoever is in control, but another's word replaces our rate, and
a zero after it would stop theirs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from efftam_flight.mavlink.dialect import mav
from efftam_flight.mavlink.standstill import Motion, Standstill, resembles
from efftam_flight.values import Rates


class Manager(NamedTuple):
    """What a kind of autopilot does with rates: ``gates``: it obeys the component in control alone;
    ``wakes_s``: after its boot, until it drives its mount by the rates that it has kept."""

    gates: bool = False
    wakes_s: float = 0.0


# By HEARTBEAT.autopilot. ArduPilot drives its mount 9 s after its first heartbeat, which takes up to 3 s.
MANAGERS = {
    mav.MAV_AUTOPILOT_ARDUPILOTMEGA: Manager(wakes_s=12.0),
    mav.MAV_AUTOPILOT_PX4: Manager(gates=True),
}


class Situation(NamedTuple):
    """``in_control``: the manager names us, or nobody yet; ``another``: it names another component;
    ``boot_s``: its time since boot, infinite where that is not known."""

    manager: Manager = Manager()
    in_control: bool = True
    another: bool = False
    boot_s: float = math.inf


class Due(Enum):
    """What a debt asks for at a moment."""

    ZERO = "zero"  # a zero rate, ten times a second
    LOOK = "look"  # nothing, until the gimbal's attitude tells who moves it
    LEFT = "left"  # nothing: another moves it, or zeros do not count
    PAID = "paid"  # nothing any more: it stands


@dataclass(frozen=True)
class Debt:
    """The zeros owed for a rate that was sent. Only the gimbal's own attitude pays it: it stands.

    ``motion``: the last rate, zero where another process sent it; ``ended_s``: since when none is sent;
    ``turned``: how the gimbal turned then, None where it did not; ``zeros_s``: since when zeros go out;
    ``is_contested``: another was heard moving the gimbal; ``earlier``: the rates of the second before: on a
    link that is cut an older one may be the last that was heard.
    """

    motion: Rates
    ended_s: float = math.inf
    turned: Motion | None = None
    zeros_s: float = math.inf
    is_contested: bool = False
    earlier: tuple[Rates, ...] = ()

    def due(self, at: Situation, seen: Standstill, now_s: float) -> Due:
        if self._is_paid(at, seen, now_s):
            return Due.PAID
        if at.manager.gates:
            return Due.ZERO if at.in_control else Due.LEFT
        is_asleep = at.boot_s < at.manager.wakes_s  # then nobody moves its gimbal
        if is_asleep or not (self.is_contested or at.another):
            return Due.ZERO
        if self.is_contested and not seen.reaches(self.ended_s, now_s):
            return Due.LOOK
        # Their word may have come before our last rate, or may not have counted: then it turns on by ours.
        motion = seen.motion(self.ended_s, now_s)
        return Due.ZERO if motion is None or self._is_ours(motion) else Due.LEFT

    def _is_paid(self, at: Situation, seen: Standstill, now_s: float) -> bool:
        if at.boot_s < at.manager.wakes_s:
            return False
        # What was not seen turning may stand because nothing drives it yet: then a zero has to go out.
        return seen.stands(self.zeros_s if self.turned is None else self.ended_s, now_s)

    def _is_ours(self, motion: Motion) -> bool:
        ours = [(rates.pitch, rates.yaw, rates.yaw) for rates in (self.motion, *self.earlier)]
        return any(resembles(motion, one) for one in (*ours, *([self.turned] if self.turned else [])))
