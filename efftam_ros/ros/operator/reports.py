"""Between the tracker's messages and what the page takes and gives."""

from __future__ import annotations

import math
import time
from typing import Any

from geometry_msgs.msg import Point
from std_msgs.msg import Header

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_ros.core.types import TrackState
from efftam_ros.interop.coded_video import VideoDecoder, header_of, image_of
from efftam_ros.interop.messages import (
    Outcome,
    compressed_size,
    image_from_compressed,
    image_from_message,
    stamp_ns,
)
from efftam_ros.msg import TargetSelection
from efftam_ros.operator.feed import BoxReport, MotionReport, Picture, Proposal, Result, Selection
from efftam_ros.runtime.image.encodings import to_bgr

LARGEST_STAMP_NS = 2**31 * 1_000_000_000 - 1
"""builtin_interfaces/Time counts seconds in 31 bits."""
JPEG_START = b"\xff\xd8"


def image_stamp(message: Any) -> int:
    """The stamp of the image that a message is of, ns. Raises ValueError where it is negative."""
    stamp = stamp_ns(message.header.stamp)
    if stamp < 0:
        raise ValueError(f"the stamp is {stamp} ns; it must not be negative")
    return stamp


def raw_picture(message: Any, most_pixels: int) -> Picture:
    """A sensor_msgs/Image; its pixels are read when somebody looks. Raises InputError where they can't be."""
    image = image_from_message(message, most_pixels)
    return Picture(image_stamp(message), bgr=lambda: to_bgr(image), nbytes=len(message.data))


def compressed_picture(message: Any, most_pixels: int) -> Picture:
    """A sensor_msgs/CompressedImage; a JPEG goes to the pages as it came. Raises InputError where its first
    bytes say that it can't be read."""
    compressed_size(message, most_pixels)
    data = bytes(message.data)
    if data.startswith(JPEG_START):
        return Picture(image_stamp(message), jpeg=data, nbytes=len(data))
    pixels = lambda: to_bgr(image_from_compressed(message, most_pixels))  # noqa: E731
    return Picture(image_stamp(message), bgr=pixels, nbytes=len(data))


def video_picture(decoder: VideoDecoder, message: Any, most_pixels: int) -> Picture:
    """A message of a video, of which every one must come here. Raises InputError where it gives no image."""
    frame = decoder.decode(message, time.monotonic_ns(), most_pixels)
    stamp = stamp_ns(header_of(message, Header).stamp)
    return Picture(stamp, bgr=lambda: to_bgr(image_of(frame)))


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
        likeness=message.likeness,
        steered=message.steered,
    )


def motion_report(message: Any) -> MotionReport:
    """A TargetVelocity. Raises ValueError for a stamp that does not exist."""
    return MotionReport(
        image_stamp(message),
        target_id=message.target_id,
        valid=message.valid,
        velocity=(message.velocity_x, message.velocity_y),
    )


def _box(x: float, y: float, width: float, height: float) -> Box | None:
    known = all(math.isfinite(v) for v in (x, y, width, height))
    return Box(x, y, width, height) if known else None


def result_of(message: Any) -> Result:
    """A SelectionResult. Raises ValueError for an outcome or a stamp that does not exist."""
    return Result(
        image_stamp(message),
        Outcome(message.outcome),
        target_id=message.target_id,
        selection=message.selection,
        message=message.message,
    )


def proposal_of(message: Any) -> Proposal:
    """A BoundingBox that is proposed. Raises ValueError for a stamp that does not exist."""
    box = _box(message.x, message.y, message.width, message.height)
    return Proposal(image_stamp(message), box, message.reason)


def selection_message(selection: Selection) -> TargetSelection:
    """What was drawn, as the tracker takes it. Raises InputError for a stamp that no message can hold."""
    if selection.stamp_ns > LARGEST_STAMP_NS:
        raise InputError(
            f"the selection is on an image of {selection.stamp_ns} ns; stamps end at {LARGEST_STAMP_NS} ns"
        )
    message = TargetSelection(target_id=selection.target_id, units=TargetSelection.PIXELS)
    message.header.stamp.sec, message.header.stamp.nanosec = divmod(selection.stamp_ns, 1_000_000_000)
    if selection.box is not None:
        message.kind = TargetSelection.BOX
        message.x, message.y, message.width, message.height = map(float, selection.box.xywh())
    else:
        message.kind = TargetSelection.POINTS
        message.points = [Point(x=float(x), y=float(y)) for x, y in selection.points]
        message.labels = list(selection.labels)
    return message
