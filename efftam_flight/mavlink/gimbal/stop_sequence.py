"""The stop sequence: what is sent after the last rate until the gimbal stands, by kind of autopilot.

What the autopilot remembers decides. PX4 obeys the component in control alone and keeps its last rate for
2 s: zeros go before control is released, and count only while we are in control. ArduPilot obeys whoever
speaks and keeps the last rate for ever: zeros are due whoever is in control, but another's command replaces
our rate, and a zero after it would undo it. So what another commanded ends the sequence for good, once the
gimbal's own attitude has shown that it does not turn by our rate any more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from efftam_flight.mavlink.dialect import mav
from efftam_flight.mavlink.gimbal.standstill import GimbalMotion, Motion, resembles
from efftam_flight.values import Rates
from efftam_flight.waits import CREEP_S, STANDS_S

# Slower than this it seems to stand: it turns by 0.25 degrees in half a second, rad/s.
CREEPS = math.radians(0.5)
# A slower rate is not stopped where another component sent a command: a zero may undo that command.
MIN_CREEP = math.radians(0.1)

ROI = (
    *(mav.MAV_CMD_DO_SET_ROI_LOCATION, mav.MAV_CMD_DO_SET_ROI_WPNEXT_OFFSET, mav.MAV_CMD_DO_SET_ROI_NONE),
    *(mav.MAV_CMD_DO_SET_ROI_SYSID, mav.MAV_CMD_DO_SET_ROI),
)
MOUNT = (mav.MAV_CMD_DO_MOUNT_CONFIGURE, mav.MAV_CMD_DO_MOUNT_CONTROL)


class AutopilotKind(NamedTuple):
    """What a kind of autopilot does with commands to its gimbal.

    ``gates``: it obeys the rates of the component in control alone, and stops by itself. ``ungated``: the
    commands that it obeys from anybody nevertheless. ``reads_number``: of several gimbals a command moves the
    one that it names. ``wakes_s``: time after its boot until it drives its mount, by the rates it has kept.
    """

    gates: bool = False
    ungated: tuple[int, ...] = ()
    reads_number: bool = True
    wakes_s: float = 0.0


# By HEARTBEAT.autopilot. ArduPilot drives its mount 9 s after its first heartbeat, which takes up to 3 s.
KINDS = {
    mav.MAV_AUTOPILOT_ARDUPILOTMEGA: AutopilotKind(wakes_s=12.0),
    mav.MAV_AUTOPILOT_PX4: AutopilotKind(gates=True, ungated=(*ROI, *MOUNT), reads_number=False),
}


class Situation(NamedTuple):
    """``in_control``: the manager names us, or nobody yet; ``another``: it names another component;
    ``boot_s``: the autopilot's time since its boot, infinite where that is not known."""

    autopilot: AutopilotKind = AutopilotKind()
    in_control: bool = True
    another: bool = False
    boot_s: float = math.inf


class StopStep(Enum):
    """What a stop sequence asks for at a moment."""

    ZERO = "zero"  # send a zero rate, ten times a second
    WATCH = "watch"  # send nothing until the gimbal's attitude shows who moves it
    USELESS = "useless"  # send nothing: zeros would not be obeyed at present
    TAKEN = "taken"  # end permanently: another component's command moves the gimbal
    DONE = "done"  # end: the gimbal stands


@dataclass(frozen=True)
class StopSequence:
    """The stop sequence of a rate that was sent. Only the gimbal's own attitude ends it.

    ``motion``: the last rate, zero where another process sent it; ``ended_s``: since when none is sent;
    ``turned``: how the gimbal turned then, None where it did not; ``zeros_s``: since when zeros go out;
    ``contested_s``: since when another component commands the gimbal, and it is not known whether
    that counts; ``earlier``: the rates of the second before: on a link that is cut an older one may be the
    last that was received.
    """

    motion: Rates
    ended_s: float = math.inf
    turned: Motion | None = None
    zeros_s: float = math.inf
    contested_s: float = math.inf
    earlier: tuple[Rates, ...] = ()

    @property
    def is_contested(self) -> bool:
        return self.contested_s < math.inf

    def step(self, at: Situation, seen: GimbalMotion, now_s: float) -> StopStep:
        if self._stands(at, seen, now_s):
            # Where another component sent a command, that may be what holds the gimbal still.
            return StopStep.TAKEN if self.is_contested and not at.autopilot.gates else StopStep.DONE
        if at.autopilot.gates:
            return StopStep.ZERO if at.in_control else StopStep.USELESS
        if self.is_contested:
            return self._who_moves(at, seen, now_s)
        if at.another and self._is_moved_otherwise(at, seen, now_s):
            return StopStep.TAKEN
        return StopStep.ZERO

    def _awake_s(self, at: Situation, now_s: float) -> float:
        """Since when the autopilot has driven its mount; in the future while it does not."""
        return now_s - (at.boot_s - at.autopilot.wakes_s)

    def _stands(self, at: Situation, seen: GimbalMotion, now_s: float) -> bool:
        if self._awake_s(at, now_s) > now_s:
            return False
        # A gimbal that was not seen turning may stand because nothing drives it yet: a zero rate must still
        # be sent.
        since_s = self.zeros_s if self.turned is None else self.ended_s
        return seen.stands(since_s, now_s)

    def _who_moves(self, at: Situation, seen: GimbalMotion, now_s: float) -> StopStep:
        """Return whether another's command counted: the gimbal does not turn by our rate any more. It may
        have come before our last rate, or may have been refused: then the gimbal keeps turning by ours."""
        since_s = max(self.contested_s, self._awake_s(at, now_s))
        if not seen.reaches(since_s, now_s):
            return StopStep.WATCH
        if seen.motion(since_s, now_s) is not None:
            return StopStep.ZERO if self._is_ours(seen, since_s, now_s) else StopStep.TAKEN
        # It stands, or turns too slowly to be seen.
        rate = math.hypot(self.motion.pitch, self.motion.yaw)
        if not MIN_CREEP <= rate <= CREEPS:
            return StopStep.TAKEN
        if now_s - since_s < CREEP_S:
            return StopStep.WATCH
        is_ours = resembles(seen.moved(since_s, now_s), _motion(self.motion), MIN_CREEP / 2)
        return StopStep.ZERO if is_ours else StopStep.TAKEN

    def _is_moved_otherwise(self, at: Situation, seen: GimbalMotion, now_s: float) -> bool:
        """Return whether another component turns the gimbal, which got a zero rate and had the time to
        stop."""
        since_s = max(self.ended_s + STANDS_S, self._awake_s(at, now_s))
        is_turning = seen.motion(since_s, now_s) is not None
        return is_turning and not self._is_ours(seen, since_s, now_s)

    def _is_ours(self, seen: GimbalMotion, since_s: float, now_s: float) -> bool:
        """Return whether it turns by one of our rates all the time: a mean alone may resemble one while
        another's command brakes it. While it changes over to the last rate the answer is False."""
        parts = seen.parts(since_s, now_s)
        ours = [_motion(rates) for rates in (self.motion, *self.earlier)]
        ours += [] if self.turned is None else [self.turned]
        return any(all(resembles(part, one) for part in parts) for one in ours)


def _motion(rates: Rates) -> Motion:
    """Return a rate as a motion: its yaw counts in whichever frame the gimbal's does."""
    return rates.pitch, rates.yaw, rates.yaw
