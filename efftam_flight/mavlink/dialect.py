"""The MAVLink 2 message definitions of pymavlink."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

# The versioned dialect uses MAVLink 2 whatever the value of the environment variable MAVLINK20.
from pymavlink.dialects.v20 import common as mav

# pymavlink has no types.
Message = Any

# Messages between a gimbal manager and its client.
ATTITUDE = mav.MAVLINK_MSG_ID_GIMBAL_DEVICE_ATTITUDE_STATUS
MANAGER_STATUS = mav.MAVLINK_MSG_ID_GIMBAL_MANAGER_STATUS
MANAGER_INFORMATION = mav.MAVLINK_MSG_ID_GIMBAL_MANAGER_INFORMATION
VEHICLE_ATTITUDE = mav.MAVLINK_MSG_ID_ATTITUDE


class Severity(IntEnum):
    """MAV_SEVERITY of what is reported."""

    ERROR = mav.MAV_SEVERITY_ERROR
    WARNING = mav.MAV_SEVERITY_WARNING
    INFO = mav.MAV_SEVERITY_INFO


__all__ = [
    "ATTITUDE", "MANAGER_INFORMATION", "MANAGER_STATUS", "VEHICLE_ATTITUDE", "Message", "Severity", "mav"
]  # fmt: skip
