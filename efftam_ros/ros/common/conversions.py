"""Between ROS messages and values that several nodes share: the camera's calibration, selections."""

from __future__ import annotations

from typing import Any

from geometry_msgs.msg import Point

from efftam_ros.core.errors import InputError
from efftam_ros.images.message import stamp_like
from efftam_ros.messages.bearing import CameraModel, camera_model, delivered_size
from efftam_ros.messages.reports import Selection
from efftam_ros.msg import TargetSelection

MAX_STAMP_NS = 2**31 * 1_000_000_000 - 1
"""builtin_interfaces/Time counts seconds in 31 bits."""


def camera_of(message: Any) -> CameraModel:
    """Read the camera model from a sensor_msgs/CameraInfo, by its K. None when it holds no calibration; the
    tracker logs that. The distortion is not used, so that an unknown model does not matter."""
    try:
        return camera_model(message, with_distortion=False)
    except InputError:
        return CameraModel(None, *delivered_size(message))


def selection_message(selection: Selection) -> TargetSelection:
    """Raises InputError for a stamp that no message can hold."""
    if selection.stamp_ns > MAX_STAMP_NS:
        raise InputError(
            f"the selection is on an image of {selection.stamp_ns} ns; stamps end at {MAX_STAMP_NS} ns"
        )
    units = TargetSelection.NORMALIZED if selection.normalized else TargetSelection.PIXELS
    message = TargetSelection(target_id=selection.target_id, units=units, kind=TargetSelection.CLEAR)
    message.header.stamp = stamp_like(message.header.stamp, selection.stamp_ns)
    if selection.box is not None:
        message.kind = TargetSelection.BOX
        message.x, message.y, message.width, message.height = map(float, selection.box.xywh())
    elif selection.points:
        message.kind = TargetSelection.POINTS
        message.points = [Point(x=float(x), y=float(y)) for x, y in selection.points]
        message.labels = list(selection.labels)
    return message
