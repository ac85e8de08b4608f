"""The publishers of one configured node, between the thread that tracks and the one that watches."""

from __future__ import annotations

import threading

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed")
pytest.importorskip("efftam_ros.msg", reason="the messages are not built")

import rclpy
from ros_helpers import new_namespace
from std_msgs.msg import Header

from efftam_ros.core.types import Track, TrackState
from efftam_ros.interop.messages import Outcome
from efftam_ros.ros.tracker import publishing
from efftam_ros.ros.tracker.frame_buffer import Command
from efftam_ros.ros.tracker.publishing import Answer

pytestmark = pytest.mark.ros
LAST = Answer(Header(), Track(1000, TrackState.TRACKING, image_size=(64, 48)), 1, 0.0, 0.0)


@pytest.fixture
def outputs(ros):
    node = rclpy.create_node("outputs", namespace=new_namespace())
    outputs = publishing.Outputs(node, with_detections=False, with_annotations=False)
    outputs._latest = LAST
    yield outputs
    node.destroy_node()


def test_after_closing_the_watch_publishes_nothing(outputs):
    outputs.close()
    outputs.take_back("no image for 0.3 s")
    outputs.publish_result(Command(None, 0, 1), Outcome.ACCEPTED)


def test_after_closing_no_topic_has_a_publisher_of_the_node(ros):
    """Left ones would be counted as those of a second tracker once the node is configured again."""
    node = rclpy.create_node("outputs", namespace=new_namespace())
    before = set(node.publishers)
    outputs = publishing.Outputs(node, with_detections=False, with_annotations=False)
    assert {publisher.topic_name.rpartition("/")[2] for publisher in set(node.publishers) - before} >= {
        "bbox",
        "velocity",
        "mask",
    }
    outputs.close()
    assert set(node.publishers) == before
    node.destroy_node()


def test_closing_waits_for_a_message_that_is_being_published(outputs, monkeypatch):
    """A publisher that goes while it publishes would raise in the other thread."""
    making, closed = threading.Event(), threading.Event()
    make_fields = publishing.velocity_fields

    def slow_fields(*args, **kwargs):
        making.set()
        closed.wait(0.5)
        return make_fields(*args, **kwargs)

    monkeypatch.setattr(publishing, "velocity_fields", slow_fields)

    def close():
        making.wait(5.0)
        outputs.close()
        closed.set()

    closing = threading.Thread(target=close)
    closing.start()
    outputs.take_back("no image for 0.3 s")
    closing.join()
    assert closed.is_set()
