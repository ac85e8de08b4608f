"""The MAVLink 2 message definitions of pymavlink, and names for some of them."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

# This module of pymavlink uses MAVLink 2, whatever the value of the environment variable MAVLINK20.
from pymavlink.dialects.v20 import common as mav

# pymavlink has no type annotations.
Message = Any

# Ids of messages that a gimbal manager sends to its clients, and of the vehicle's attitude.
ATTITUDE = mav.MAVLINK_MSG_ID_GIMBAL_DEVICE_ATTITUDE_STATUS
MANAGER_STATUS = mav.MAVLINK_MSG_ID_GIMBAL_MANAGER_STATUS
MANAGER_INFORMATION = mav.MAVLINK_MSG_ID_GIMBAL_MANAGER_INFORMATION
VEHICLE_ATTITUDE = mav.MAVLINK_MSG_ID_ATTITUDE


class Severity(IntEnum):
    """The severity of a log line, as MAVLink's MAV_SEVERITY."""

    ERROR = mav.MAV_SEVERITY_ERROR
    WARNING = mav.MAV_SEVERITY_WARNING
    NOTICE = mav.MAV_SEVERITY_NOTICE
    INFO = mav.MAV_SEVERITY_INFO


__all__ = [
    "ATTITUDE", "MANAGER_INFORMATION", "MANAGER_STATUS", "VEHICLE_ATTITUDE", "Message", "Severity", "mav"
]  # fmt: skip
