"""The publishers of one configured node, between the thread that tracks and the one that watches."""

from __future__ import annotations

import math
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed")
pytest.importorskip("efftam_ros.msg", reason="the messages are not built")

import rclpy
from builtin_interfaces.msg import Time
from ros_helpers import new_namespace
from std_msgs.msg import Header

from efftam_ros.core.geometry import Box
from efftam_ros.core.targets import Step
from efftam_ros.core.types import Motion, Track, TrackState
from efftam_ros.images.message import ReceivedImage
from efftam_ros.messages.fields import About, Outcome
from efftam_ros.ros.tracker import publishing
from efftam_ros.ros.tracker.frame_buffer import Command
from efftam_ros.ros.tracker.table import PublishedAnswer, TargetTable

pytestmark = pytest.mark.ros
LAST = PublishedAnswer(About(Header(), 1), Track(1000, TrackState.TRACKING, image_size=(64, 48)), 0.0, 0.0)


@pytest.fixture
def outputs(ros):
    node = rclpy.create_node("outputs", namespace=new_namespace())
    outputs = publishing.Outputs(node, with_detections=False)
    outputs.table.keep(0, LAST)
    yield outputs
    node.destroy_node()


def test_after_closing_the_watch_publishes_nothing(outputs):
    outputs.close()
    outputs.take_back(LAST, "no image for 0.3 s", 0.0)
    outputs.publish_result(Command(None, 0, 1), Outcome.ACCEPTED)


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
    outputs.take_back(LAST, "no image for 0.3 s", 0.0)
    closing.join()
    assert closed.is_set()


@pytest.fixture
def boxes(outputs, monkeypatch):
    """The boxes that are published."""
    published = []
    monkeypatch.setattr(outputs._bbox, "publish", published.append)
    return published


def publish(
    outputs, stamp_ns: int, selection: int, target_id: int = 0, steered=True, **how
) -> PublishedAnswer:
    """The answer to an image, of a target that may be steered by."""
    box = Box(10.0, 10.0, 20.0, 20.0)
    motion = Motion(stamp_ns, box, (0.0, 0.0), np.eye(4))
    track = Track(stamp_ns, TrackState.TRACKING, box, True, motion=motion, image_size=(64, 48))
    header = Header(stamp=Time(nanosec=stamp_ns))
    frame = ReceivedImage(header, stamp_ns, time.monotonic(), 100, (64, 48), lambda: None)
    predictions = SimpleNamespace(predict=lambda stamp_ns: motion)
    outputs.table.select(target_id, selection)
    about = About(header, 0, target_id, steered)
    return outputs.publish(frame, Step(target_id, track, predictions), about, "", **how)[0]


def test_an_answer_is_taken_back_under_its_own_stamp(outputs, boxes):
    publish(outputs, 1000, 1)
    answer = publish(outputs, 2000, 2)
    assert outputs.table.answers == {0: answer}
    outputs.take_back(answer, "no image for 0.3 s", 0.0)
    found = [(box.header.stamp.nanosec, box.selection, box.valid, math.isnan(box.x)) for box in boxes]
    assert found == [(1000, 1, True, False), (2000, 2, True, False), (2000, 2, False, True)]


def test_an_answer_that_a_newer_one_followed_is_not_taken_back(outputs, boxes):
    """The loop may publish while the executor's thread decides that answers are missing."""
    old = publish(outputs, 1000, 1)
    publish(outputs, 2000, 2)
    outputs.take_back(old, "no answer for 0.3 s", 0.0)
    assert [box.valid for box in boxes] == [True, True]


def test_a_frame_that_is_finished_while_the_node_ends_is_not_to_be_steered_by(outputs, boxes):
    publish(outputs, 1000, 1)
    outputs.end("the node was deactivated")
    publish(outputs, 2000, 1)
    assert [(box.valid, box.reason) for box in boxes[1:]] == [(False, "the node was deactivated")] * 2
    outputs.begin(TargetTable())
    assert outputs.table.answers == {}
    publish(outputs, 3000, 1)
    assert boxes[-1].valid


def test_a_box_waits_for_those_of_smaller_ids(outputs, boxes):
    publish(outputs, 1000, 2, target_id=2, box_waits=True)
    assert boxes == []
    for target_id in (0, 1, 3):
        publish(outputs, 1000, 1, target_id=target_id, steered=False)
    assert [(box.target_id, box.steered) for box in boxes] == [(0, False), (1, False), (2, True), (3, False)]
    publish(outputs, 2000, 2, target_id=2, box_waits=True)
    outputs.finish(Header(), 2, with_tracks=False)
    assert (boxes[-1].target_id, boxes[-1].valid) == (2, True)


@pytest.mark.parametrize("end", ["take_back", "end"])
def test_a_box_that_waits_is_not_valid_once_its_answer_is_taken_back(outputs, boxes, end):
    answer = publish(outputs, 1000, 1, target_id=1, box_waits=True)
    if end == "take_back":
        outputs.take_back(answer, "no answer for 0.3 s", 0.0)
    else:
        outputs.end("the node was deactivated")
    outputs.finish(Header(), 1, with_tracks=False)
    assert not any(box.valid for box in boxes if box.target_id == 1)


def test_what_is_taken_back_after_a_switch_is_of_the_target_that_is_steered_by_now(outputs, boxes):
    publish(outputs, 1000, 1)
    publish(outputs, 1000, 2, target_id=1, steered=False)
    outputs.table.steer(1)
    for answer in outputs.table.answers.values():
        outputs.take_back(answer, "no image for 0.3 s", 0.0)
    assert [(box.target_id, box.steered) for box in boxes[2:]] == [(0, False), (1, True)]


def test_the_velocity_comes_before_the_box(outputs, monkeypatch):
    """Control waits for it."""
    published = []
    monkeypatch.setattr(outputs._bbox, "publish", published.append)
    monkeypatch.setattr(outputs._velocity, "publish", published.append)
    publish(outputs, 1000, 1)
    assert [type(message).__name__ for message in published] == ["TargetVelocity", "BoundingBox"]


def test_an_answer_is_taken_back_again_now_and_then_while_there_is_a_target(outputs, boxes):
    answer = publish(outputs, 1000, 1)
    taken = [outputs.take_back(answer, "no image", now_s) for now_s in (1.0, 1.2, 1.4, 1.5, 1.9, 2.0)]
    assert taken == [True, False, False, True, False, True]
    outputs.clear(0, "the target was cleared")
    (cleared,) = outputs.table.answers.values()
    assert not outputs.take_back(cleared, "no image", 9.0)
