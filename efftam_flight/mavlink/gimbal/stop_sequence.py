"""The stop sequence: what is sent after the last rate until the gimbal stands, for each kind of autopilot.

PX4 obeys only the component in control, and keeps its last rate for 2 s. So zero rates are sent before
control is released, and have an effect only while we are in control.

ArduPilot obeys any component, and keeps the last rate for ever. So zero rates are sent whoever is in control.
But another component's command replaces our rate, and a zero rate after this command would undo it. So
another component's command ends the sequence, as soon as the gimbal's attitude shows that the gimbal does not
turn by our rate any more.
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

# A gimbal that turns slower than this seems to stand, as it turns by less than 0.25 degrees in 0.5 s; rad/s.
CREEPS = math.radians(0.5)
# If another component sent a command, a rate of ours below this is not stopped, since a zero rate may undo
# that command; rad/s.
MIN_CREEP = math.radians(0.1)

ROI = (
    *(mav.MAV_CMD_DO_SET_ROI_LOCATION, mav.MAV_CMD_DO_SET_ROI_WPNEXT_OFFSET, mav.MAV_CMD_DO_SET_ROI_NONE),
    *(mav.MAV_CMD_DO_SET_ROI_SYSID, mav.MAV_CMD_DO_SET_ROI),
)
MOUNT = (mav.MAV_CMD_DO_MOUNT_CONFIGURE, mav.MAV_CMD_DO_MOUNT_CONTROL)


class AutopilotKind(NamedTuple):
    """How a kind of autopilot treats commands to its gimbal.

    ``gates``: it obeys only rates of the component in control, and stops by itself when no rate arrives.
    ``ungated``: commands that it obeys from any component nevertheless. ``reads_number``: if there are
    several gimbals, a command moves the one that it names. ``wakes_s``: time from the autopilot's boot until
    it begins to move the gimbal, s. It then moves the gimbal by the rate that it received last.
    """

    gates: bool = False
    ungated: tuple[int, ...] = ()
    reads_number: bool = True
    wakes_s: float = 0.0


# The kinds of autopilots, by the field `autopilot` of the heartbeat. ArduPilot moves the gimbal 9 s after its
# first heartbeat, which is sent up to 3 s after its boot.
KINDS = {
    mav.MAV_AUTOPILOT_ARDUPILOTMEGA: AutopilotKind(wakes_s=12.0),
    mav.MAV_AUTOPILOT_PX4: AutopilotKind(gates=True, ungated=(*ROI, *MOUNT), reads_number=False),
}


class Situation(NamedTuple):
    """What is known of the autopilot at one moment.

    ``in_control``: whether the autopilot is expected to obey our zero rates. ``another``: whether its manager
    reports another component in control. ``boot_s``: the autopilot's time since its boot, s, infinite if
    unknown.
    """

    autopilot: AutopilotKind = AutopilotKind()
    in_control: bool = True
    another: bool = False
    boot_s: float = math.inf


class StopStep(Enum):
    """The step of a stop sequence: what must be done at present."""

    ZERO = "zero"  # send a zero rate, ten times a second
    WATCH = "watch"  # send nothing until the gimbal's attitude shows who moves it
    USELESS = "useless"  # send nothing: the autopilot would not obey zero rates at present
    TAKEN = "taken"  # end permanently: another component's command moves the gimbal
    DONE = "done"  # end: the gimbal stands


@dataclass(frozen=True)
class StopSequence:
    """The stop sequence that follows a rate. Only the gimbal's attitude ends it.

    ``motion``: the last rate that was sent; zero if an earlier process sent it. ``ended_s``: when the motion
    ended, infinite before. ``turned``: how the gimbal turned then; None if it stood or if that is unknown.
    ``zeros_s``: when the first zero rate was sent. ``contested_s``: since when another component commands the
    gimbal, while it is not known whether the autopilot obeys that command; infinite if none does.
    ``earlier``: the rates sent in the last second of the motion; if a link is cut, one of them may be the
    last rate that arrived. Times are steady times, s.
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
            # If another component sent a command, the gimbal may stand because it obeys that command.
            return StopStep.TAKEN if self.is_contested and not at.autopilot.gates else StopStep.DONE
        if at.autopilot.gates:
            return StopStep.ZERO if at.in_control else StopStep.USELESS
        if self.is_contested:
            return self._who_moves(at, seen, now_s)
        if at.another and self._is_moved_otherwise(at, seen, now_s):
            return StopStep.TAKEN
        return StopStep.ZERO

    def _awake_s(self, at: Situation, now_s: float) -> float:
        """Return the steady time from which the autopilot moves the gimbal, s. It is in the future during the
        autopilot's start."""
        return now_s - (at.boot_s - at.autopilot.wakes_s)

    def _stands(self, at: Situation, seen: GimbalMotion, now_s: float) -> bool:
        if self._awake_s(at, now_s) > now_s:
            return False
        # If the gimbal was not seen turning, it may stand only because our rate has had no effect yet. Then
        # it must stand for 0.5 s after the first zero rate.
        since_s = self.zeros_s if self.turned is None else self.ended_s
        return seen.stands(since_s, now_s)

    def _who_moves(self, at: Situation, seen: GimbalMotion, now_s: float) -> StopStep:
        """Return the step after another component's command. TAKEN: the gimbal does not turn by our rate any
        more, so the autopilot obeyed that command. ZERO: the gimbal still turns by our rate. The command was
        refused, or arrived before our last rate. WATCH: this is not decided yet."""
        since_s = max(self.contested_s, self._awake_s(at, now_s))
        if not seen.reaches(since_s, now_s):
            return StopStep.WATCH
        if seen.motion(since_s, now_s) is not None:
            return StopStep.ZERO if self._is_ours(seen, since_s, now_s) else StopStep.TAKEN
        # If no motion was found, the gimbal stands, or it turns too slowly to be seen in 0.5 s.
        rate = math.hypot(self.motion.pitch, self.motion.yaw)
        if not MIN_CREEP <= rate <= CREEPS:
            return StopStep.TAKEN
        if now_s - since_s < CREEP_S:
            return StopStep.WATCH
        is_ours = resembles(seen.moved(since_s, now_s), _motion(self.motion), MIN_CREEP / 2)
        return StopStep.ZERO if is_ours else StopStep.TAKEN

    def _is_moved_otherwise(self, at: Situation, seen: GimbalMotion, now_s: float) -> bool:
        """Return whether another component turns the gimbal: it turns although it had time to stop after our
        motion ended, and not by a rate of ours."""
        since_s = max(self.ended_s + STANDS_S, self._awake_s(at, now_s))
        is_turning = seen.motion(since_s, now_s) is not None
        return is_turning and not self._is_ours(seen, since_s, now_s)

    def _is_ours(self, seen: GimbalMotion, since_s: float, now_s: float) -> bool:
        """Return whether the gimbal turns by one of our rates in each part of the last 0.5 s.

        The mean of the whole time is not enough: it may resemble our rate while another component's command
        slows the gimbal down. The result is False while the gimbal still changes to our last rate.
        """
        parts = seen.parts(since_s, now_s)
        ours = [_motion(rates) for rates in (self.motion, *self.earlier)]
        ours += [] if self.turned is None else [self.turned]
        return any(all(resembles(part, one) for part in parts) for one in ours)


def _motion(rates: Rates) -> Motion:
    """Return a rate as a motion, with its yaw rate in both yaw frames."""
    return rates.pitch, rates.yaw, rates.yaw
