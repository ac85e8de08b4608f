"""Rivals: other components that command the gimbal, as far as their messages come by our link."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from efftam_flight.mavlink.dialect import Message, mav
from efftam_flight.mavlink.gimbal.stop_sequence import MOUNT, ROI, AutopilotKind

# What moves the gimbal when another component sends it.
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
    """``name``: who commands the gimbal, and by what; ``counts``: the autopilot is known to obey that from
    anybody."""

    name: str
    counts: bool = False


class Rivals:
    """``channels``: RC channels, from 1, by which the pilot moves the gimbal: moved by more than
    ``dead_band_us`` since `begin`. ``is_ours``: whether a gimbal_device_id means the gimbal that we steer."""

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
        """Take the sticks' present positions as their rest."""
        self._rest.clear()

    def find(self, message: Message, autopilot: AutopilotKind) -> RivalCommand | None:
        """Return the rival whose message this is; None for any other message."""
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
    """Return the gimbal_device_id that a message names; 0: none, which means every gimbal. Autopilots read
    none in points of interest and mount commands."""
    if message.get_type() in WISHES:
        return int(message.gimbal_device_id)
    if message.command == PITCHYAW:
        number = message.param7 if message.get_type() == "COMMAND_LONG" else message.z
    else:
        return 0
    # A parameter that is not used may be NaN.
    return int(number) if 0 <= number <= 255 else 0
