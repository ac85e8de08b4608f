"""What the page is told of the messages that its node hears."""

from __future__ import annotations

import math
from types import SimpleNamespace

import cv2
import numpy as np
import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed")
pytest.importorskip("efftam_ros.msg", reason="the messages are not built")

from sensor_msgs.msg import CompressedImage
from std_msgs.msg import Header

from efftam_ros.core.geometry import Box
from efftam_ros.core.types import Track, TrackState
from efftam_ros.images.message import ImageReader
from efftam_ros.messages.fields import About, bbox_fields
from efftam_ros.messages.reports import box_report
from efftam_ros.ros.operator.feed import picture_of

PIXELS = np.random.default_rng(0).integers(0, 255, (48, 64, 3), np.uint8)


def compressed(suffix: str) -> CompressedImage:
    message = CompressedImage(format=suffix.lstrip("."), data=cv2.imencode(suffix, PIXELS)[1].tobytes())
    message.header.stamp.sec = 7
    return message


def compressed_picture(message: CompressedImage):
    return picture_of(message, ImageReader("compressed", Header).read(message, 0))


def test_a_jpeg_goes_to_the_pages_as_it_came():
    message = compressed(".jpg")
    picture = compressed_picture(message)
    assert picture.stamp_ns == 7_000_000_000
    assert picture.jpeg == bytes(message.data)
    assert picture.bgr is None


def test_another_format_is_decoded_for_the_pages_which_show_jpeg():
    picture = compressed_picture(compressed(".png"))
    assert picture.jpeg is None
    assert np.array_equal(picture.bgr(), PIXELS)


@pytest.mark.parametrize("unknown", [(), ("y",), ("x", "y", "width", "height")])
def test_a_box_of_a_message_is_known_as_a_whole_or_not_at_all(unknown):
    header = SimpleNamespace(stamp=SimpleNamespace(sec=1, nanosec=0))
    track = Track(10**9, TrackState.TRACKING, Box(1, 2, 30, 40), True, 0.9, 0.8, image_size=(640, 360))
    fields = bbox_fields(track, About(header)) | dict.fromkeys(unknown, math.nan)
    assert box_report(SimpleNamespace(**fields)).box == (None if unknown else Box(1, 2, 30, 40))


@pytest.mark.parametrize("likeness", [0.71, math.nan])
def test_the_scores_of_a_box_message_reach_the_page(likeness):
    header = SimpleNamespace(stamp=SimpleNamespace(sec=1, nanosec=0))
    track = Track(10**9, TrackState.TRACKING, Box(1, 2, 30, 40), True, 0.9, 0.8, likeness=likeness)
    report = box_report(SimpleNamespace(**bbox_fields(track, About(header))))
    assert (report.presence, report.quality) == (0.9, 0.8)
    assert report.likeness == pytest.approx(likeness, nan_ok=True)
