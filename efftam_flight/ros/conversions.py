"""Converts between ROS messages and the types of `efftam_flight`: attitudes, positions, limits, control,
status."""

from __future__ import annotations

import math
from typing import Any

from efftam_ros.msg import GimbalManager, GimbalStatus, VehiclePosition

from efftam_flight.angles import product
from efftam_flight.control_config import GimbalCommand, Law, Phase
from efftam_flight.position.geodesy import GeoPoint
from efftam_flight.position.poses import LocalSample, PlaceSample
from efftam_flight.values import (
    AttitudeSample,
    Control,
    GimbalLimits,
    Quaternion,
    VehicleSample,
    YawFrame,
    device_sample,
)
from efftam_ros.core.errors import InputError, shown
from efftam_ros.images.message import stamp_like, stamp_ns
from efftam_ros.messages.fields import reason_fields

# The members of these enumerations have the names of the messages' constants.
CONTROLS = {getattr(GimbalManager, each.name): each for each in Control}
PHASES = {each: getattr(GimbalStatus, each.name) for each in Phase}
LAWS = {each: getattr(GimbalStatus, each.name) for each in Law}
# Rotations between axes: from east-north-up to north-east-down, and from the camera's forward-right-down axes
# to its optical axes and to forward-left-up axes.
NED_OF_ENU: Quaternion = (0.0, math.sqrt(0.5), math.sqrt(0.5), 0.0)
OPTICAL_OF_CAMERA: Quaternion = (0.5, -0.5, -0.5, -0.5)
BODY_OF_CAMERA: Quaternion = (0.0, 1.0, 0.0, 0.0)


def attitude_of(message: Any, at_pitch_limit: bool, at_yaw_limit: bool) -> AttitudeSample:
    """Read an attitude from a geometry_msgs/QuaternionStamped. Raise InputError if its frame_id names no yaw
    frame ("earth" or "vehicle"). ``at_pitch_limit``, ``at_yaw_limit``: whether this axis is at an end
    stop."""
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
    """Read an attitude from a mavros_msgs/GimbalDeviceAttitudeStatus. Its quaternion has MAVLink's axes."""
    q, stamp = message.q, stamp_ns(message.header.stamp)
    return device_sample(stamp, (q.w, q.x, q.y, q.z), message.flags, message.failure_flags)


def vehicle_of(message: Any) -> VehicleSample:
    """Read the vehicle's attitude from a VehicleHeading."""
    return VehicleSample(
        stamp_ns(message.header.stamp), message.yaw, message.yaw_rate, message.roll, message.pitch
    )


def place_of(message: Any) -> PlaceSample:
    """Read the vehicle's position from a VehiclePosition."""
    return PlaceSample(
        stamp_ns(message.header.stamp),
        GeoPoint(message.latitude, message.longitude, message.altitude),
        (message.velocity_north, message.velocity_east, message.velocity_down),
        message.height_above_home,
        message.height_above_terrain,
        message.range,
    )


def place_message(sample: PlaceSample) -> VehiclePosition:
    """Return the vehicle's position as a VehiclePosition."""
    north, east, down = sample.velocity
    message = VehiclePosition(
        latitude=sample.point.latitude,
        longitude=sample.point.longitude,
        altitude=sample.point.altitude,
        velocity_north=north,
        velocity_east=east,
        velocity_down=down,
        height_above_home=sample.height_above_home,
        height_above_terrain=sample.height_above_terrain,
        range=sample.range,
    )
    message.header.stamp = stamp_like(message.header.stamp, max(sample.stamp_ns, 0))
    return message


def local_sample(stamp: int, position: Any, orientation: Any, is_optical: bool) -> LocalSample:
    """Return a sample of the camera's pose, from a pose in an east-north-up frame. ``stamp``: ns.
    ``is_optical``: whether the camera's axes in this pose are right, down, forward (REP 103); otherwise they
    are forward, left, up."""
    q = (orientation.w, orientation.x, orientation.y, orientation.z)
    camera = OPTICAL_OF_CAMERA if is_optical else BODY_OF_CAMERA
    return LocalSample(stamp, (position.y, position.x, -position.z), product(NED_OF_ENU, product(q, camera)))


def control_of(message: Any) -> Control:
    """Read who is in control from a GimbalManager. Raise InputError if its number is unknown."""
    if message.control not in CONTROLS:
        raise InputError(f"control is {message.control}; give a number from 0 to {max(CONTROLS)}")
    return CONTROLS[message.control]


def limits_of(message: Any) -> GimbalLimits:
    """Read the angles of the mount's end stops from a GimbalManager."""
    return GimbalLimits(message.pitch_min, message.pitch_max, message.yaw_min, message.yaw_max)


def status_message(command: GimbalCommand, enabled: bool) -> GimbalStatus:
    """Return the controller's decision as a GimbalStatus, without a stamp."""
    return GimbalStatus(
        enabled=enabled,
        phase=PHASES[command.phase],
        law=LAWS[command.law],
        sending=command.send,
        pitch_rate=command.rates.pitch,
        yaw_rate=command.rates.yaw,
        **reason_fields(command.reason),
        at_stop=list(command.at_stop),
    )
