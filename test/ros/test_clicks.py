"""Clicks of other tools are taken where the node is told to."""

from __future__ import annotations

from efftam_ros.msg import SelectionResult
from geometry_msgs.msg import Point
from level_pipeline import bright_box
from ros_helpers import box_of

from efftam_ros.core.geometry import iou


def test_a_click_follows_what_is_there(tracker):
    peer = tracker("-p", "image_timeout:=60.0", "-p", "clicks:=point")
    clicks = peer.node.create_publisher(Point, "click", 10)
    peer.wait(lambda: clicks.get_subscription_count() == 1, "the tracker to subscribe to clicks")
    peer.spin_for(0.2)
    peer.show(0)
    clicks.publish(Point(x=bright_box(0).cx, y=bright_box(0).cy))
    peer.wait(lambda: peer.results, "what became of the click")
    assert peer.results[-1].outcome == SelectionResult.ACCEPTED
    assert iou(box_of(peer.box_of_selection(1)), bright_box(0)) > 0.9


def test_without_the_parameter_no_click_is_taken(peer):
    clicks = peer.node.create_publisher(Point, "click", 10)
    peer.spin_for(0.5)
    assert clicks.get_subscription_count() == 0
