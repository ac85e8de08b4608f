"""Clicks of other tools on the picture select a point, where the node is told to take them."""

from __future__ import annotations

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed")
pytest.importorskip("efftam_ros.msg", reason="the messages are not built")

from efftam_ros.msg import SelectionResult
from geometry_msgs.msg import Point, PointStamped
from level_pipeline import bright_box
from ros_helpers import box_of, stamp_of

from efftam_ros.core.geometry import iou

pytestmark = pytest.mark.ros

LASTING = ("-p", "image_timeout:=60.0")


@pytest.fixture
def clicker(tracker):
    """``clicker("point", Point)``: a tracker that takes clicks, and the publisher of them."""

    def start(kind: str, message_type):
        peer = tracker(*LASTING, "-p", f"clicks:={kind}")
        clicks = peer.node.create_publisher(message_type, "click", 10)
        peer.wait(lambda: clicks.get_subscription_count() == 1, "the tracker to subscribe to clicks")
        peer.spin_for(0.2)
        return peer, clicks

    return start


def stamped(box, stamp: int, frame_id: str = "") -> PointStamped:
    click = PointStamped(point=Point(x=box.cx, y=box.cy))
    click.header.frame_id = frame_id
    click.header.stamp.sec, click.header.stamp.nanosec = divmod(stamp, 10**9)
    return click


def result_of(peer) -> SelectionResult:
    peer.wait(lambda: peer.results, "what became of the click")
    return peer.results[-1]


@pytest.mark.parametrize("frame_id", ["", "camera_optical_frame"])
def test_a_click_follows_what_is_there(clicker, frame_id):
    peer, clicks = clicker("point_stamped", PointStamped)
    peer.show(0)
    clicks.publish(stamped(bright_box(0), stamp_of(0), frame_id))
    result = result_of(peer)
    assert result.outcome == SelectionResult.ACCEPTED, result.message
    assert iou(box_of(peer.box_of_selection(result.selection)), bright_box(0)) > 0.9


@pytest.mark.parametrize(
    "click",
    [
        Point(x=bright_box(4).cx, y=bright_box(4).cy),
        stamped(bright_box(4), stamp_of(4) + 700_000_000),  # RViz stamps clicks with the time of the click
    ],
    ids=["no stamp", "stamped by the clock"],
)
def test_a_click_without_the_stamp_of_an_image_is_on_the_newest(clicker, click):
    peer, clicks = clicker("point" if isinstance(click, Point) else "point_stamped", type(click))
    for i in range(5):
        peer.show(i)
    clicks.publish(click)
    assert result_of(peer).outcome == SelectionResult.ACCEPTED
    assert iou(box_of(peer.box_of_selection(1)), bright_box(4)) > 0.9


@pytest.mark.parametrize(
    ("x", "y", "frame_id", "words"),
    [
        (1000.0, 20.0, "", ["1000"]),
        (30.0, 20.0, "map", ["'map'", "'camera_optical_frame'"]),
    ],
)
def test_what_is_no_point_of_the_image_is_refused_in_one_line(clicker, x, y, frame_id, words):
    peer, clicks = clicker("point_stamped", PointStamped)
    peer.show(0)
    click = PointStamped(point=Point(x=x, y=y))
    click.header.frame_id = frame_id
    clicks.publish(click)
    result = result_of(peer)
    assert result.outcome == SelectionResult.REFUSED
    for word in words:
        assert word in result.message
    assert not peer.show(1).measured


def test_without_the_parameter_no_click_is_taken(peer):
    clicks = peer.node.create_publisher(PointStamped, "click", 10)
    peer.spin_for(0.5)
    assert clicks.get_subscription_count() == 0
