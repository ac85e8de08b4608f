"""For how long not one pixel of the images has changed, by transport."""

from __future__ import annotations

from types import SimpleNamespace

import av
import cv2
import numpy as np
import pytest
from test_coded_video import message as coded_message

from efftam_ros.images.message import ImageReader
from efftam_ros.images.stillness import FROZEN_S, StillWatch, frozen_text

PERIOD_NS = 100_000_000


def raw(pixels):
    height, width = pixels.shape[:2]
    return SimpleNamespace(
        width=width, height=height, step=3 * width, encoding="bgr8", is_bigendian=0, data=pixels.tobytes()
    )


def compressed(pixels):
    return SimpleNamespace(format="jpeg", data=cv2.imencode(".jpg", pixels)[1].tobytes())


class Coded:
    """H.264 of images that are given one by one."""

    def __init__(self) -> None:
        self._encoder = av.CodecContext.create("libx264", "w")
        self._encoder.width, self._encoder.height, self._encoder.pix_fmt = 64, 48, "yuv420p"
        self._encoder.framerate = 10
        self._encoder.options = {"tune": "zerolatency", "g": "100", "bf": "0", "qp": "1"}
        self._count = 0

    def __call__(self, pixels):
        frame = av.VideoFrame.from_ndarray(pixels, "bgr24")
        frame.pts = self._count = self._count + 1
        (packet,) = self._encoder.encode(frame)
        return coded_message("h264", bytes(packet), 0)


@pytest.mark.parametrize(
    ("transport", "make"),
    [("raw", raw), ("compressed", compressed), ("foxglove", Coded())],
    ids=("raw", "jpeg", "h264"),
)
def test_an_image_counts_as_still_until_a_pixel_changes(transport, make):
    reader = ImageReader(transport, SimpleNamespace)
    pixels = np.random.default_rng(0).integers(0, 255, (48, 64, 3), np.uint8)
    other = pixels.copy()
    other[20:28, 20:28] ^= 255
    told = []
    for i, shown in enumerate([pixels, *[other] * 6, pixels, pixels]):
        sent = make(shown)
        stamp = SimpleNamespace(sec=1, nanosec=PERIOD_NS * i)
        if transport == "foxglove":
            sent.timestamp, sent.frame_id = stamp, "camera"
        else:
            sent.header = SimpleNamespace(stamp=stamp, frame_id="camera")
        told.append(reader.read(sent, PERIOD_NS * i).still_s)
    # A coded image may get a little better once more after a change.
    assert told[-2] == told[1] == 0.0
    assert told[6] > 0.2 if transport == "foxglove" else told[6] == pytest.approx(0.5)
    assert told == sorted(told[:7]) + told[7:]


def test_one_pixel_outside_of_the_sample_is_a_change():
    watch, data = StillWatch(), np.zeros(1_000_003, np.uint8)
    assert watch.look(data, 0.0) == 0.0
    assert watch.look(data.copy(), 2.0) == 2.0
    changed = data.copy()
    changed[1001] = 1
    assert watch.look(changed, 3.0) == 0.0
    assert watch.look(changed[:-1], 4.0) == 0.0  # of another size
    assert watch.look(np.zeros(0, np.uint8), 5.0) == 0.0
    assert watch.look(np.zeros(0, np.uint8), 6.0) == 1.0


def test_the_warning_begins_at_one_second_and_names_the_time():
    assert frozen_text(FROZEN_S - 0.01) == ""
    assert "for 1 s" in frozen_text(FROZEN_S)
