"""Boxes and motions from the tracker's messages, read by attribute: of rclpy and of bags alike."""

from __future__ import annotations

import math
from typing import Any

from efftam_ros.core.geometry import Box
from efftam_ros.core.types import TrackState
from efftam_ros.interop.messages import stamp_ns
from efftam_ros.operator.feed import BoxReport, MotionReport


def image_stamp(message: Any) -> int:
    """The stamp of the image that a message is of, ns. Raises ValueError where it is negative."""
    stamp = stamp_ns(message.header.stamp)
    if stamp < 0:
        raise ValueError(f"the stamp is {stamp} ns; it must not be negative")
    return stamp


def box_report(message: Any) -> BoxReport:
    """A BoundingBox. Raises ValueError for a state or a stamp that does not exist."""
    return BoxReport(
        image_stamp(message),
        (message.image_width, message.image_height),
        TrackState(message.state),
        target_id=message.target_id,
        selection=message.selection,
        reason=message.reason,
        measured=message.measured,
        box=_box(message.x, message.y, message.width, message.height),
        presence=message.presence,
        quality=message.quality,
        age_s=message.age,
    )


def motion_report(message: Any) -> MotionReport:
    """A TargetVelocity. Raises ValueError for a stamp that does not exist."""
    return MotionReport(
        image_stamp(message),
        target_id=message.target_id,
        valid=message.valid,
        velocity=(message.velocity_x, message.velocity_y),
        predicted=_box(
            message.predicted_x, message.predicted_y, message.predicted_width, message.predicted_height
        ),
    )


def _box(x: float, y: float, width: float, height: float) -> Box | None:
    known = all(math.isfinite(v) for v in (x, y, width, height))
    return Box(x, y, width, height) if known else None
