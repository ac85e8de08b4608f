"""Which message and which settings count: the last ones, whatever came before."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensor_msgs.msg import CameraInfo, RegionOfInterest

from efftam_ros.ros.tracker import receiving
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
    "not calibrated": [0.0] * 9,
    "refused": [math.nan, *K[1:]],
}


def message(change: str | None) -> CameraInfo:
    info = CameraInfo(**BASE)
    if change is not None:
        setattr(info, change if change in BASE or hasattr(info, change) else "k", CHANGES[change])
    return info


class Receiving:
    """A receiver without a graph around it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rectified: bool = False) -> None:
        topic = SimpleNamespace(camera_info_topic="camera_info")
        monkeypatch.setattr(receiving, "ImageInput", lambda *_: topic)
        self.outputs, self.told = SimpleNamespace(camera=None), []
        fault = lambda kind, reason: self.told.append(kind)  # noqa: E731
        shared = Exchange(
            None, self.outputs, SimpleNamespace(fault=fault), SimpleNamespace(inform=lambda *_: None)
        )
        subscribed = {}
        add = lambda kind, name, callback, qos: subscribed.setdefault(name, callback)  # noqa: E731
        subscriptions = SimpleNamespace(callbacks=dict, add=add)
        self.config = NodeConfig(rectified=rectified)
        self.receiver = receiving.Receiver(None, shared, self.config, subscriptions, None)
        self.hear = subscribed["camera_info"]

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


def test_a_changed_range_of_16_bit_images_counts_at_once_and_the_same_one_keeps_what_was_followed(
    monkeypatch,
):
    used = Receiving(monkeypatch)
    followed = used.receiver._reader.levels
    used.receiver.reconfigure(replace(used.config, rectified=True))
    assert used.receiver._reader.levels is followed
    used.receiver.reconfigure(replace(used.config, image_range="7000,9000"))
    assert used.receiver.image_range == "7000 to 9000 (fixed)"
