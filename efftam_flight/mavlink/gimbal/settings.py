"""Reads parameters of the autopilot that decide how the gimbal behaves, and describes wrong values."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import NamedTuple

from efftam_flight.mavlink.dialect import Message, mav
from efftam_flight.waits import ASK_AGAIN_S, MAX_REQUESTS

BY_NAME = -1  # this index in PARAM_REQUEST_READ means that the parameter is requested by its name


class Setting(NamedTuple):
    """A parameter of the autopilot. ``right``: the value that the documentation prescribes. ``faults``: for
    some wrong values, their effect. ``otherwise``: the effect of all other wrong values."""

    name: str
    right: int
    faults: dict[int, str]
    otherwise: str


# The parameter that is checked, by the field `autopilot` of the autopilot's heartbeat.
SETTINGS = {
    mav.MAV_AUTOPILOT_PX4: Setting(
        "MNT_MODE_IN",
        4,
        {
            0: "while the pilot's sticks are live, PX4 does not stop the gimbal by itself after 2 s when this"
            " bridge ends or the link is cut"
        },
        "PX4 obeys no rates of this bridge",
    )
}


class MountSettings:
    """Requests one parameter until it arrives, at most five times. ``ask(name)`` sends the request."""

    def __init__(self, ask: Callable[[str], None]) -> None:
        self._ask = ask
        self._value: int | None = None
        self.restart()

    def restart(self) -> None:
        """Read the parameter again, because a restarted autopilot may have another value."""
        self._value, self._tries, self._next_s = None, 0, -math.inf

    def tick(self, autopilot: int | None, now_s: float) -> None:
        """Send the request if it is due. ``autopilot``: the field `autopilot` of the autopilot's heartbeat;
        None if no heartbeat has arrived."""
        setting = SETTINGS.get(autopilot)
        if setting is None or self._value is not None or self._tries == MAX_REQUESTS or now_s < self._next_s:
            return
        self._tries, self._next_s = self._tries + 1, now_s + ASK_AGAIN_S
        self._ask(setting.name)

    def read(self, autopilot: int | None, message: Message) -> bool:
        """Read a PARAM_VALUE. Return whether it contains the requested parameter."""
        setting = SETTINGS.get(autopilot)
        if setting is None or message.param_id != setting.name:
            return False
        self._value = _whole(message)
        return True

    def fault(self, autopilot: int | None) -> str:
        """Return the effect of a wrong value and how to set the right one. Return an empty text if the value
        is right or has not arrived."""
        setting = SETTINGS.get(autopilot)
        if setting is None or self._value in (None, setting.right):
            return ""
        what = setting.faults.get(self._value, setting.otherwise)
        return (
            f"{setting.name} is {self._value}: {what}; param set {setting.name} {setting.right}, then reboot"
        )


def _whole(message: Message) -> int:
    """Return the value of a whole-number parameter; 0 if it is not finite. PX4 sends the four bytes of an
    int32 in the float field."""
    if message.param_type == mav.MAV_PARAM_TYPE_INT32:
        return int(struct.unpack("<i", struct.pack("<f", message.param_value))[0])
    return int(message.param_value) if math.isfinite(message.param_value) else 0
