"""Between the messages of the gimbal node's topics and the controller's values."""

from __future__ import annotations

from typing import Any

from efftam_ros.core.errors import InputError
from efftam_ros.core.types import TrackState
from efftam_ros.flight.control_config import GimbalCommand, Law, Phase
from efftam_ros.flight.values import (
    CameraIntrinsics,
    Control,
    GimbalLimits,
    TargetEstimate,
)
from efftam_ros.interop.messages import camera_model, delivered_size, stamp_ns
from efftam_ros.msg import GimbalManager, GimbalStatus

# The values' names are those of the messages' constants.
CONTROLS = {getattr(GimbalManager, each.name): each for each in Control}
PHASES = {each: getattr(GimbalStatus, each.name) for each in Phase}
LAWS = {each: getattr(GimbalStatus, each.name) for each in Law}


def track_state(number: int) -> TrackState:
    """The state of BoundingBox and TargetVelocity. Raises InputError for one that does not exist."""
    try:
        return TrackState(number)
    except ValueError:
        raise InputError(f"state is {number}; known are 0 to {max(TrackState)}") from None


def estimate_of(message: Any) -> TargetEstimate:
    """From a TargetVelocity. Raises InputError for a state that does not exist."""
    return TargetEstimate(
        stamp_ns=stamp_ns(message.header.stamp),
        state=track_state(message.state),
        valid=message.valid,
        measured=message.measured,
        age_s=message.age,
        has_bearing=message.has_bearing,
        azimuth=message.azimuth,
        elevation=message.elevation,
        azimuth_rate=message.azimuth_rate,
        elevation_rate=message.elevation_rate,
        selection=message.selection,
        reason=message.reason,
    )


def intrinsics_of(message: Any) -> CameraIntrinsics:
    """From a sensor_msgs/CameraInfo, by its K, for the delivered image (region of interest and binning
    applied).

    A camera without a calibration, or with one that is none (NaN, no focal length; the tracker tells it), has
    zeros in its place. The distortion is not used, so that an unknown model does not matter.
    """
    try:
        found = camera_model(message, with_distortion=False).intrinsics
    except InputError:
        found = None
    focal_and_centre = (found.fx, found.fy, found.cx, found.cy) if found is not None else (0.0, 0.0, 0.0, 0.0)
    return CameraIntrinsics(*focal_and_centre, *delivered_size(message))


def control_of(message: Any) -> Control:
    """From a GimbalManager. Raises InputError for a number that does not exist."""
    if message.control not in CONTROLS:
        raise InputError(f"control is {message.control}; known are 0 to {max(CONTROLS)}")
    return CONTROLS[message.control]


def limits_of(message: Any) -> GimbalLimits:
    """From a GimbalManager."""
    return GimbalLimits(message.pitch_min, message.pitch_max, message.yaw_min, message.yaw_max)


def status_message(command: GimbalCommand, enabled: bool) -> GimbalStatus:
    """What the controller decided, without a stamp."""
    return GimbalStatus(
        enabled=enabled,
        phase=PHASES[command.phase],
        law=LAWS[command.law],
        sending=command.send,
        pitch_rate=command.rates.pitch,
        yaw_rate=command.rates.yaw,
        reason=command.reason,
        at_stop=list(command.at_stop),
    )
