"""Detects rivals: other components that command the gimbal. Only messages that arrive on our links count."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from efftam_flight.mavlink.dialect import Message, mav
from efftam_flight.mavlink.gimbal.stop_sequence import MOUNT, ROI, AutopilotKind

# Messages with which another component moves the gimbal.
WISHES = (
    "GIMBAL_MANAGER_SET_ATTITUDE",
    "GIMBAL_MANAGER_SET_PITCHYAW",
    "GIMBAL_MANAGER_SET_MANUAL_CONTROL",
)
PITCHYAW = mav.MAV_CMD_DO_GIMBAL_MANAGER_PITCHYAW
MOVES = (PITCHYAW, *MOUNT, *ROI)
NO_CHANNEL = (0, 65535)

Ids = tuple[int, int]


class RivalCommand(NamedTuple):
    """Another component's command to the gimbal. ``name``: its sender and its message, for the log.
    ``counts``: whether the autopilot is known to obey this command from any component."""

    name: str
    counts: bool = False


class Rivals:
    """Detects rivals in the messages that arrive.

    ``channels``: numbers (from 1) of the RC channels by which the pilot moves the gimbal. A channel counts if
    it has changed by more than ``dead_band_us`` since `begin`. ``is_ours``: whether a gimbal_device_id names
    the gimbal that we steer.
    """

    def __init__(
        self,
        ids: Ids,
        manager: int,
        channels: tuple[int, ...],
        dead_band_us: int,
        is_ours: Callable[[int], bool],
    ) -> None:
        self._ids, self._manager, self._is_ours = ids, manager, is_ours
        self._channels, self._dead_band_us = channels, dead_band_us
        self._rest: dict[int, int] = {}

    def begin(self) -> None:
        """Take the next value of each RC channel as its rest position."""
        self._rest.clear()

    def find(self, message: Message, autopilot: AutopilotKind) -> RivalCommand | None:
        """Return the rival's command if the message is one; None otherwise."""
        kind, sender = message.get_type(), (message.get_srcSystem(), message.get_srcComponent())
        manager = (self._ids[0], self._manager)
        if kind == "RC_CHANNELS" and sender == manager:
            return self._stick(message)
        if sender in (self._ids, manager):
            return None
        is_wish = kind in WISHES
        is_command = kind in ("COMMAND_LONG", "COMMAND_INT") and message.command in MOVES
        if not (is_wish or is_command) or message.target_system not in (0, self._ids[0]):
            return None
        if message.target_component not in (0, self._manager):
            return None
        if autopilot.reads_number and not self._is_ours(_gimbal_number(message)):
            return None
        what = f"command {message.command}" if is_command else f"message {message.get_msgId()}"
        counts = is_command and message.command in autopilot.ungated
        return RivalCommand(f"{sender[0]}/{sender[1]} ({what})", counts)

    def _stick(self, message: Message) -> RivalCommand | None:
        for channel in self._channels:
            value = getattr(message, f"chan{channel}_raw")
            if value in NO_CHANNEL:
                continue
            if abs(value - self._rest.setdefault(channel, value)) > self._dead_band_us:
                return RivalCommand(f"RC channel {channel}")
        return None


def _gimbal_number(message: Message) -> int:
    """Return the gimbal_device_id that a message names. Return 0, which means all gimbals, if it names none.
    Commands for mounts and regions of interest contain no id that autopilots read."""
    if message.get_type() in WISHES:
        return int(message.gimbal_device_id)
    if message.command == PITCHYAW:
        number = message.param7 if message.get_type() == "COMMAND_LONG" else message.z
    else:
        return 0
    # An unused parameter may be NaN, for which the comparison is false.
    return int(number) if 0 <= number <= 255 else 0
