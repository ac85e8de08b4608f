"""Converts messages of the camera's attitude and the vehicle's heading to samples."""

from __future__ import annotations

from typing import Any

from efftam_ros.core.errors import InputError, shown
from efftam_ros.flight.values import AttitudeSample, VehicleSample, YawFrame
from efftam_ros.interop.messages import stamp_ns

# Of MAVLink's GIMBAL_DEVICE_FLAGS and GIMBAL_DEVICE_ERROR_FLAGS, as mavros passes them on.
YAW_LOCK, IN_VEHICLE_FRAME, IN_EARTH_FRAME = 16, 32, 64
AT_PITCH_LIMIT, AT_YAW_LIMIT = 2, 4


def attitude_of(message: Any, at_pitch_limit: bool, at_yaw_limit: bool) -> AttitudeSample:
    """From a geometry_msgs/QuaternionStamped. Raises InputError when frame_id names no yaw frame."""
    try:
        frame = YawFrame(message.header.frame_id)
    except ValueError:
        raise InputError(
            f"the attitude's frame_id is {shown(message.header.frame_id)}; write earth (yaw from north) or"
            " vehicle (from its nose)"
        ) from None
    q = message.quaternion
    return AttitudeSample(
        stamp_ns(message.header.stamp), (q.w, q.x, q.y, q.z), frame, at_pitch_limit, at_yaw_limit
    )


def attitude_of_mavros(message: Any) -> AttitudeSample:
    """From a mavros_msgs/GimbalDeviceAttitudeStatus, whose quaternion is MAVLink's own."""
    q, flags = message.q, message.flags
    from_north = not flags & IN_VEHICLE_FRAME and flags & (IN_EARTH_FRAME | YAW_LOCK)
    return AttitudeSample(
        stamp_ns(message.header.stamp),
        (q.w, q.x, q.y, q.z),
        YawFrame.EARTH if from_north else YawFrame.VEHICLE,
        bool(message.failure_flags & AT_PITCH_LIMIT),
        bool(message.failure_flags & AT_YAW_LIMIT),
    )


def vehicle_of(message: Any) -> VehicleSample:
    """From a VehicleHeading."""
    return VehicleSample(stamp_ns(message.header.stamp), message.yaw, message.yaw_rate)
