"""Which message and which settings count: the last ones, whatever came before."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
from builtin_interfaces.msg import Time
from hypothesis import example, given
from hypothesis import strategies as st
from sensor_msgs.msg import CameraInfo, CompressedImage, Image, RegionOfInterest
from std_msgs.msg import Header

from efftam_ros.ros.tracker import receiving
from efftam_ros.ros.tracker.diagnostics import Setup, Statistics
from efftam_ros.ros.tracker.frame_buffer import FrameBuffer
from efftam_ros.ros.tracker.loop import Exchange
from efftam_ros.ros.tracker.parameters import NodeConfig

K = [300.0, 0.0, 159.5, 0.0, 310.0, 119.5, 0.0, 0.0, 1.0]
P = [280.0, 0.0, 150.5, 0.0, 0.0, 290.0, 110.5, 0.0, 0.0, 0.0, 1.0, 0.0]
BASE = {
    "width": 320,
    "height": 240,
    "k": K,
    "p": P,
    "distortion_model": "plumb_bob",
    "d": [0.1, 0.0, 0.0, 0.0, 0.0],
}
# Each changes one thing that the bearing depends on.
CHANGES = {
    "width": 640,
    "height": 480,
    "k": [330.0, *K[1:]],
    "p": [260.0, *P[1:]],
    "d": [0.2, 0.0, 0.0, 0.0, 0.0],
    "distortion_model": "rational_polynomial",
    "binning_x": 2,
    "binning_y": 2,
    "roi": RegionOfInterest(x_offset=8, y_offset=4, width=160, height=120),
    "a region that moved": RegionOfInterest(x_offset=9, y_offset=4, width=160, height=120),
    "a region that moved down": RegionOfInterest(x_offset=8, y_offset=5, width=160, height=120),
    "not calibrated": [0.0] * 9,
    "refused": [math.nan, *K[1:]],
}


def message(change: str | None) -> CameraInfo:
    info = CameraInfo(**BASE)
    if change is not None:
        value = CHANGES[change]
        field = "roi" if isinstance(value, RegionOfInterest) else change if hasattr(info, change) else "k"
        setattr(info, field, value)
    return info


class Receiving:
    """A receiver without a graph around it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rectified: bool = False, **config: object) -> None:
        self.input = SimpleNamespace(camera_info_topic="camera_info", topic="image", look=lambda: None)
        monkeypatch.setattr(receiving, "ImageInput", self._input)
        self.outputs, self.told, self.prefetched = SimpleNamespace(camera=None), [], []
        self.buffer, self.statistics = FrameBuffer(10.0, 10**9), Statistics(self._tell)
        shared = Exchange(self.buffer, self.outputs, self.statistics, SimpleNamespace(inform=self._tell))
        self.subscribed: dict[str, Callable] = {}
        self.config = NodeConfig(rectified=rectified, **config)
        self.receiver = receiving.Receiver(None, shared, self.config, self, self.prefetched.append)

    def _input(self, node, transport, reliability, receive, callbacks) -> SimpleNamespace:
        self.receive, self.lose = receive, callbacks("image")
        return self.input

    def _tell(self, kind: str, text: str) -> None:
        self.told.append(kind)

    # As `Subscriptions`.

    def add(self, kind, name, callback, qos) -> str:
        self.subscribed[name] = callback
        return name

    def remove(self, name: str) -> None:
        del self.subscribed[name]

    def callbacks(self, topic: str, lost: Callable) -> Callable:
        return lost

    def hear(self, info: CameraInfo) -> None:
        (callback,) = self.subscribed.values()
        callback(info)

    def rectify(self, rectified: bool) -> None:
        self.config = replace(self.config, rectified=rectified)
        self.receiver.reconfigure(self.config)

    @property
    def bearing(self) -> object:
        """Where a pixel is; with a refused calibration nowhere."""
        model = self.outputs.camera
        lens = model and model.intrinsics
        return model and (model.width, model.height, lens and lens.ray(33.0, 44.0))


@given(steps=st.lists(st.sampled_from([None, *CHANGES, True, False]), min_size=1, max_size=8))
@example(steps=["roi", "a region that moved"])
@example(steps=["roi", "a region that moved down"])
def test_the_calibration_is_that_of_the_last_message_under_the_last_setting(steps):
    """Whichever one field has changed, and also where the one before it was refused."""
    with pytest.MonkeyPatch.context() as patch:
        used, last, rectified = Receiving(patch), "none", False
        for step in steps:
            if isinstance(step, bool):
                rectified = step
                used.rectify(step)
            else:
                last = step
                used.hear(message(step))
            fresh = Receiving(patch, rectified)
            if last != "none":
                fresh.hear(message(last))
            assert used.bearing == fresh.bearing
            assert used.receiver.describe_camera() == fresh.receiver.describe_camera()


def test_every_change_of_the_table_is_one_of_the_bearing(monkeypatch):
    seen = {}
    for rectified in (False, True):
        for change in (None, *CHANGES):
            used = Receiving(monkeypatch, rectified)
            used.hear(message(change))
            seen[change, rectified] = used.bearing
    for change in CHANGES:
        assert any(seen[change, rectified] != seen[None, rectified] for rectified in (False, True)), change


def test_a_calibration_that_comes_with_every_image_is_told_once(monkeypatch):
    used = Receiving(monkeypatch)
    for _ in range(3):
        used.hear(message("refused"))
    assert used.told == ["bearing"]
    for _ in range(3):
        used.hear(message("not calibrated"))
    assert used.told == ["bearing", "camera_info"]


def test_the_calibration_is_heard_on_the_topic_of_now_alone(monkeypatch):
    used = Receiving(monkeypatch)
    for topic in ("camera_info", "nose/camera_info", "nose/camera_info", "camera_info"):
        used.input.camera_info_topic = topic
        used.receiver.look()
        assert list(used.subscribed) == [topic]
        assert used.receiver.describe_camera() == f"none on {topic}"


def image(stamp_ns: int, **changes: object) -> Image:
    made = Image(width=64, height=16, step=192, encoding="bgr8", data=bytes(3072))
    made.header.stamp = Time(sec=stamp_ns // 10**9, nanosec=stamp_ns % 10**9)
    for name, value in changes.items():
        setattr(made, name, value)
    return made


SECOND = 10**9


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (image(8 * SECOND, data=bytes(10)), "10 bytes"),
        (image(8 * SECOND, encoding="x" * 10**6), "'xxx"),
        (image(8 * SECOND, header=Header(frame_id="f" * 10**6, stamp=Time(sec=8))), "frame_id"),
        (image(8 * SECOND, width=65, step=195, data=bytes(3120)), "max_image_pixels"),
        (image(0), "image stamp is zero"),
        (image(7 * SECOND), "two images in a row"),
        (image(900 * SECOND), "ahead of the arrival"),
    ],
    ids=["data", "encoding", "frame_id", "size", "no stamp", "equal stamp", "wrong stamp"],
)
def test_a_bad_image_is_refused_in_a_short_line_and_the_others_are_kept_and_counted(monkeypatch, bad, words):
    good = [image(number * SECOND) for number in range(1, 8)]
    used, now_ns = Receiving(monkeypatch, max_image_pixels=1024), 0
    monkeypatch.setattr(receiving, "time", SimpleNamespace(monotonic_ns=lambda: now_ns))
    for number, message in enumerate((*good, bad, image(9 * SECOND)), 1):
        now_ns = number * SECOND
        used.receive(message)
    values = used.statistics.verdict(9.0, Setup("active"), 60.0).values
    assert (values["images received"], values["images refused"]) == ("8", "1")
    assert words in values["last refused image"]
    assert len(values["last refused image"]) < 700
    assert used.told == ["image"]
    assert used.buffer.newest.stamp_ns == 9 * SECOND
    assert used.buffer.find(0) is used.buffer.newest
    assert used.prefetched[-1] is used.buffer.newest.pixels
    assert used.buffer.newest.nbytes == 3072 + receiving.OVERHEAD_BYTES


def test_images_lost_on_their_way_are_counted_and_coded_ones_wait_for_the_loop(monkeypatch):
    used = Receiving(monkeypatch, image_transport="compressed")
    pixels = cv2.imencode(".png", np.zeros((9, 9), np.uint8))[1].tobytes()
    for number in range(1, 8):
        header = Header(stamp=Time(sec=number), frame_id="nose")
        used.receive(CompressedImage(header=header, format="png", data=pixels))
    used.lose(SimpleNamespace(total_count_change=3))
    assert used.statistics.lost_share(time.monotonic()) == 0.3
    assert used.prefetched == []
    assert used.buffer.newest.size == (9, 9)
    assert used.buffer.newest.nbytes == len(pixels) + len("nose") + receiving.OVERHEAD_BYTES


def test_a_changed_range_of_16_bit_images_counts_at_once_and_the_same_one_keeps_what_was_followed(
    monkeypatch,
):
    used = Receiving(monkeypatch)
    followed = used.receiver._reader.levels
    used.receiver.reconfigure(replace(used.config, rectified=True))
    assert used.receiver._reader.levels is followed
    used.receiver.reconfigure(replace(used.config, image_range="7000,9000"))
    assert used.receiver.image_range == "7000 to 9000 (fixed)"


@pytest.mark.parametrize(
    ("topic", "is_rectified"),
    [
        ("/camera/image_rect", True),
        ("/camera/image_rect_color/compressed", True),
        ("/stereo/left/rectified/image", True),
        ("/camera/undistorted", True),
        ("/camera/image_raw", False),
        ("/direct/image", False),
        ("/camera/image_rectangle", False),
    ],
)
def test_images_of_a_topic_that_is_called_rectified_are_taken_as_rectified(topic, is_rectified, monkeypatch):
    info = message(None)
    info.d = [-0.3, 0.1, 0.0, 0.0, 0.0]
    used, plain, rectified = (Receiving(monkeypatch, setting) for setting in (False, False, True))
    used.input.topic = topic
    for one in (used, plain, rectified):
        one.hear(info)
    assert used.bearing == (rectified if is_rectified else plain).bearing
    assert plain.bearing != rectified.bearing
    assert any("rectified" in kind for kind in used.told) == is_rectified
    used.told.clear()
    info.p = [0.0] * 12  # a driver that leaves it out: K, without distortion
    used.hear(info)
    assert used.bearing is not None
