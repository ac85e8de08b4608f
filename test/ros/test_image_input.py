"""The subscription to images follows the camera, and no image is lost or doubled on the way."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed")

from hypothesis import example, given
from hypothesis import strategies as st
from rclpy.qos import ReliabilityPolicy

from efftam_ros.ros.common import image_input
from efftam_ros.ros.common.image_input import OVERLAP_S, ImageInput

RELIABLE, BEST_EFFORT = ReliabilityPolicy.RELIABLE, ReliabilityPolicy.BEST_EFFORT
IMAGE = "sensor_msgs/msg/Image"


def image_of(number: int) -> SimpleNamespace:
    return SimpleNamespace(header=SimpleNamespace(stamp=number))


class Node:
    """Of a graph with one camera, which offers ``reliability`` on ``topic``."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.topic, self.reliability, self.now_s = "/image", RELIABLE, 0.0
        self.subscriptions: list[SimpleNamespace] = []
        self.received: list[int] = []
        patch.setattr(image_input, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        self.input = ImageInput(self, "raw", "auto", self._receive, lambda topic: None)

    def _receive(self, message) -> None:
        self.received.append(message.header.stamp)

    def image(self, number: int, is_new_first: bool = False) -> None:
        """The image reaches each subscription that has been matched with the camera."""
        for one in self.subscriptions[:: -1 if is_new_first else 1]:
            if one.is_matched:
                one.callback(image_of(number))

    # As rclpy's.

    def resolve_topic_name(self, name: str, only_expand: bool = False) -> str:
        return f"/{name}"

    def get_publishers_info_by_topic(self, topic: str) -> list[SimpleNamespace]:
        qos = SimpleNamespace(reliability=self.reliability)
        camera = SimpleNamespace(topic_type=IMAGE, node_name="camera", qos_profile=qos)
        return [camera] if topic == self.topic else []

    def has_parameter(self, name: str) -> bool:
        return True

    def get_parameter(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(value="")

    def create_subscription(self, kind, topic, callback, qos, **options) -> SimpleNamespace:
        made = SimpleNamespace(callback=callback, reliability=qos.reliability, is_matched=False)
        self.subscriptions.append(made)
        return made

    def destroy_subscription(self, subscription) -> None:
        self.subscriptions.remove(subscription)


STEPS = st.lists(
    st.sampled_from(["image", "image, the new one first", "switch", "match", "look"]), max_size=20
)


@given(STEPS)
@example(["image", "switch", "image", "match", "image", "image", "look", "image"])
@example(["switch", "match", "switch", "image", "match", "image, the new one first", "look", "image"])
def test_while_the_camera_restarts_every_image_is_received_once(steps):
    with pytest.MonkeyPatch.context() as patch:
        node, sent = Node(patch), []
        node.subscriptions[0].is_matched = True
        for number, step in enumerate(steps):
            if step.startswith("image"):
                sent.append(number)
                node.image(number, is_new_first=step != "image")
            elif step == "switch":
                node.reliability = BEST_EFFORT if node.reliability is RELIABLE else RELIABLE
                node.input.look()
                assert node.subscriptions[-1].reliability is node.reliability
            elif step == "match":
                for one in node.subscriptions:
                    one.is_matched = True
            else:
                node.input.look()
        assert node.received == sent


def test_what_the_old_subscription_still_holds_is_not_received_after_what_the_new_one_delivered(monkeypatch):
    node = Node(monkeypatch)
    node.reliability = BEST_EFFORT
    node.input.look()
    old, new = node.subscriptions
    for one, number in ((old, 1), (new, 2), (old, 1)):
        one.callback(image_of(number))
    assert node.received == [1, 2]


@pytest.mark.parametrize(
    ("is_matched", "now_s", "count"),
    [(False, 0.0, 2), (False, OVERLAP_S, 2), (False, OVERLAP_S + 0.1, 1), (True, 0.0, 1)],
)
def test_the_old_subscription_ends_once_the_new_one_delivers_or_after_a_second(
    monkeypatch, is_matched, now_s, count
):
    node = Node(monkeypatch)
    node.reliability = BEST_EFFORT
    node.input.look()
    node.subscriptions[-1].is_matched, node.now_s = is_matched, now_s
    node.image(1)
    node.input.look()
    assert [one.reliability for one in node.subscriptions] == [RELIABLE, BEST_EFFORT][-count:]
    node.input.close()
    assert node.subscriptions == []
