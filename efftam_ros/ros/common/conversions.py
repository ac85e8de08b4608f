"""Conversions of ROS messages that several nodes use: the camera's calibration, selections."""

from __future__ import annotations

from typing import Any

from geometry_msgs.msg import Point

from efftam_ros.core.errors import InputError
from efftam_ros.images.message import stamp_like
from efftam_ros.messages.bearing import CameraModel, camera_model, delivered_size
from efftam_ros.messages.reports import Selection
from efftam_ros.msg import TargetSelection

MAX_STAMP_NS = 2**31 * 1_000_000_000 - 1
"""The largest stamp of a message, ns: builtin_interfaces/Time counts seconds in 31 bits."""


def camera_of(message: Any) -> CameraModel:
    """Read the camera model from the matrix K of a sensor_msgs/CameraInfo.

    The distortion is not used, so its model may be unknown. A message with unusable numbers gives a model
    without calibration (``intrinsics`` is None); the tracker logs this fault, so it is not logged here.
    """
    try:
        return camera_model(message, with_distortion=False)
    except InputError:
        return CameraModel(None, *delivered_size(message))


def selection_message(selection: Selection) -> TargetSelection:
    """Return the TargetSelection of a selection: BOX, POINTS, or CLEAR if it has neither.

    Raises InputError for a stamp above `MAX_STAMP_NS`.
    """
    if selection.stamp_ns > MAX_STAMP_NS:
        raise InputError(
            f"the selection's stamp is {selection.stamp_ns} ns; the largest stamp of a message is"
            f" {MAX_STAMP_NS} ns"
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
