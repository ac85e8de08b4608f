"""A box that is proposed for a point, on the real middleware, the node in a process of its own."""

from __future__ import annotations

import pytest
from efftam_ros.msg import BoundingBox, TargetSelection
from geometry_msgs.msg import Point
from level_pipeline import bright_box
from ros_helpers import box_of, box_selection, stamp_of

from efftam_ros.core.geometry import iou
from efftam_ros.images.message import stamp_ns


class Asking:
    """Asks a tracker for proposals; ``told``: those that came."""

    def __init__(self, peer) -> None:
        self.peer, self.told = peer, []
        self._asks = peer.node.create_publisher(TargetSelection, "propose", 10)
        peer.node.create_subscription(BoundingBox, "proposal", self.told.append, 10)
        name = peer.node.resolve_topic_name("proposal")
        peer.wait(lambda: self._asks.get_subscription_count() > 0, "the subscription to propose")
        peer.wait(lambda: peer.node.count_publishers(name) > 0, "the publisher of proposal")
        peer.spin_for(0.3)

    def ask(self, box, stamp: int, kind: int = TargetSelection.POINTS) -> None:
        """For the point in the middle of ``box``."""
        message = TargetSelection(kind=kind, points=[Point(x=box.cx, y=box.cy)], labels=[1])
        message.header.stamp.sec, message.header.stamp.nanosec = divmod(stamp, 10**9)
        self._asks.publish(message)

    def answer(self, count: int = 1) -> BoundingBox:
        self.peer.wait(lambda: len(self.told) >= count, f"proposal {count}")
        assert len(self.told) == count
        return self.told[-1]


@pytest.fixture
def asking(tracker):
    return Asking(tracker("-p", "image_timeout:=60.0"))


def test_a_point_proposes_the_box_of_its_image_and_selects_nothing(asking):
    peer = asking.peer
    for i in range(5):
        peer.show(i)
    asking.ask(bright_box(2), stamp_of(2))
    told = asking.answer()
    assert stamp_ns(told.header.stamp) == stamp_of(2)
    assert iou(box_of(told), bright_box(2)) > 0.9
    assert (told.reason, told.valid, told.state) == ("", False, BoundingBox.IDLE)
    assert peer.show(5).state == BoundingBox.IDLE
    assert peer.results == []
    # What was proposed is selected as a box of that image.
    accepted = peer.select(box_selection(box_of(told), stamp_of(2)))
    assert accepted.success
    peer.show(6)
    assert iou(box_of(peer.box_of_selection(accepted.selection)), bright_box(2)) > 0.9
