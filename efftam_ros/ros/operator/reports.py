"""Between the tracker's messages and what the page takes and gives."""

from __future__ import annotations

import time
from typing import Any

from std_msgs.msg import Header

from efftam_ros.interop.coded_video import VideoDecoder, header_of, image_of
from efftam_ros.interop.messages import (
    compressed_size,
    image_from_compressed,
    image_from_message,
    stamp_ns,
)
from efftam_ros.interop.reports import box_report
from efftam_ros.operator.feed import Picture, Proposal
from efftam_ros.runtime.image.encodings import to_bgr

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


def proposal_of(message: Any) -> Proposal:
    """A BoundingBox that is proposed."""
    report = box_report(message)
    return Proposal(report.stamp_ns, report.box, report.reason)
