"""Reads parameters of the autopilot that decide what the gimbal does, and names values that are wrong."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import NamedTuple

from efftam_flight.mavlink.dialect import Message, mav
from efftam_flight.waits import ASK_AGAIN_S, MAX_REQUESTS

BY_NAME = -1  # as the index of the parameter that is asked for


class Setting(NamedTuple):
    """``right``: the value that the documentation prescribes; ``faults``: what others do, by value;
    ``otherwise``: what all the rest does."""

    name: str
    right: int
    faults: dict[int, str]
    otherwise: str


# By HEARTBEAT.autopilot.
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
    """Asks for one parameter until it comes, five times at most. ``ask`` sends a request by a name."""

    def __init__(self, ask: Callable[[str], None]) -> None:
        self._ask = ask
        self._value: int | None = None
        self.restart()

    def restart(self) -> None:
        """Read the parameters again: the autopilot may have others."""
        self._value, self._tries, self._next_s = None, 0, -math.inf

    def tick(self, autopilot: int | None, now_s: float) -> None:
        """Request what is due. ``autopilot``: of its heartbeat, None while it is not known."""
        setting = SETTINGS.get(autopilot)
        if setting is None or self._value is not None or self._tries == MAX_REQUESTS or now_s < self._next_s:
            return
        self._tries, self._next_s = self._tries + 1, now_s + ASK_AGAIN_S
        self._ask(setting.name)

    def read(self, autopilot: int | None, message: Message) -> bool:
        """Read a PARAM_VALUE. Returns whether it is the requested one."""
        setting = SETTINGS.get(autopilot)
        if setting is None or message.param_id != setting.name:
            return False
        self._value = _whole(message)
        return True

    def fault(self, autopilot: int | None) -> str:
        """Return what the parameter's value breaks and how to set it; empty where it is right or never
        arrived."""
        setting = SETTINGS.get(autopilot)
        if setting is None or self._value in (None, setting.right):
            return ""
        what = setting.faults.get(self._value, setting.otherwise)
        return (
            f"{setting.name} is {self._value}: {what}; param set {setting.name} {setting.right}, then reboot"
        )


def _whole(message: Message) -> int:
    """Return the value of a whole-number parameter. PX4 sends its four bytes in the place of a float."""
    if message.param_type == mav.MAV_PARAM_TYPE_INT32:
        return int(struct.unpack("<i", struct.pack("<f", message.param_value))[0])
    return int(message.param_value) if math.isfinite(message.param_value) else 0
